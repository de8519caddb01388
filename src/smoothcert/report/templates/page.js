"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const views = new Map();
  const shown = { hidden: new Set(), bound: false, row: 0 };
  document.body.classList.add("scripted", "show-counted");

  // Text enters the page only as text.
  const element = (name, text, ...classes) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    made.classList.add(...classes);
    return made;
  };
  const say = (text) => { one("#said").textContent = text; };

  const tip = one("#tip");
  const showTip = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
  };
  const hideTip = () => { tip.hidden = true; };

  // Shares just below 1 differ in the digits after the nines.
  const number = (value) => String(Number(value > 0.99 && value < 1 ? value.toFixed(6) : value.toPrecision(4)));
  const down = (value) => (Math.floor(value * 1000 + 1e-9) / 1000).toFixed(3);
  const runName = (run) => (data.runs.length > 1 ? `${data.runs[run]}: ` : "");
  const told = (value) => {
    if (value.text !== undefined) return value.text;
    if (value.bin) return `${runName(value.bin.run)}${(100 * value.bin.share).toFixed(1)} % of inputs in ${number(value.bin.from)} … ${number(value.bin.to)}`;
    const box = value.box;
    return `${runName(box.run)}${box.class}, ${box.inputs} inputs\nmedian ${down(box.q2)}\nmiddle half ${down(box.q1)} to ${down(box.q3)}\n10 to 90 % ${down(box.q0)} to ${down(box.q4)}`;
  };
  const tooltip = (_, event, __, value) => (value === null || value === undefined || value === "" ? hideTip() : showTip(event, told(value)));

  const probed = (row) => data.runs
    .map((name, run) => ({ run, name, value: data.probes[row][(shown.bound ? "b" : "a") + run] }))
    .filter((entry) => entry.value !== undefined && !shown.hidden.has(entry.run));

  const readOut = () => {
    if (!one("#probe")) return;
    one("#probe-radius").textContent = data.probes[shown.row].text;
    const lines = probed(shown.row).map((entry) => {
      const line = element("div");
      const swatch = one(`.legend [data-run="${entry.run}"] .swatch`) || one(".run .swatch");
      if (swatch) line.append(swatch.cloneNode(true));
      line.append(element("b", entry.value), element("span", data.runs.length > 1 ? entry.name : shown.bound ? "at least" : "of the inputs"));
      return line;
    });
    one("#probe-values").replaceChildren(...lines);
  };

  const embed = async (place) => {
    const name = place.dataset.chart;
    if (views.has(name) || !data.charts[name]) return;
    views.set(name, null);
    const { view } = await vegaEmbed(place.firstElementChild, data.charts[name], {
      mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip,
    });
    views.set(name, view);
    view.signal("hidden", [...shown.hidden]);
    if (name === "accuracy") {
      if (probe) view.signal("pinned", shown.row);
      followPointer(place, view);
    }
    await view.runAsync();
    place.dataset.drawn = "yes";
  };

  // The number of the radius under the pointer, or -1 outside the plot.
  const rowAt = (place, view, event) => {
    const plot = place.querySelector("svg .root > g > .background").getBoundingClientRect();
    const share = (event.clientX - plot.left) / plot.width, height = (event.clientY - plot.top) / plot.height;
    if (!(share >= 0 && share <= 1 && height >= 0 && height <= 1)) return -1;
    const radius = view.scale("x").invert(share * view.width());
    return Math.max(0, Math.min(data.probes.length - 1, Math.round(radius / data.probes[1].r)));
  };

  const followPointer = (place, view) => {
    view.signal("bound", shown.bound);
    let pointed = -1;
    const point = (row) => {
      if (row === pointed) return;
      pointed = row;
      view.signal("pointed", row).runAsync();
      if (row < 0) hideTip();
    };
    const read = (event) => {
      const row = rowAt(place, view, event);
      point(row);
      if (row < 0) return;
      const lines = probed(row).map((entry) => `${entry.value}${data.runs.length > 1 ? ` ${entry.name}` : ""}`);
      showTip(event, [`radius ${data.probes[row].text}${shown.bound ? ", at least" : ""}`, ...lines].join("\n"));
    };
    place.addEventListener("pointermove", read);
    place.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") point(-1); });
    // On a touch screen nothing hovers: a tap or click reads the curves and moves the slider.
    place.addEventListener("click", (event) => {
      read(event);
      if (pointed >= 0) moveProbe(pointed);
    });
    document.addEventListener("pointerdown", (event) => { if (!place.contains(event.target)) point(-1); });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") point(-1); });
    // Dragging keeps the curves in sight.
    view.addSignalListener("zoom_r", (_, value) => {
      if (!Array.isArray(value)) return;
      const [low, high] = value, width = Math.min(high - low, wholeAxis[1]);
      const from = Math.max(0, Math.min(low, wholeAxis[1] - width));
      if (Math.abs(from - low) > 1e-9 * width || Math.abs(from + width - high) > 1e-9 * width) {
        setTimeout(() => view.signal("zoom_r", [from, from + width]).runAsync());
      }
    });
  };
  const wholeAxis = data.charts.accuracy ? data.charts.accuracy.layer[0].encoding.x.scale.domain : null;

  // A chart is drawn when it comes near the visible part, and before printing.
  const visible = (place) => !place.closest("[hidden]");
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) embed(entry.target);
  }, { rootMargin: "600px" });
  all(".chart").forEach((place) => watcher.observe(place));
  // Folded parts that must be read with the figures are opened for printing.
  let unfolded = [];
  addEventListener("beforeprint", () => {
    all(".chart").filter(visible).forEach(embed);
    unfolded = all("details[data-print]:not([open])");
    unfolded.forEach((fold) => { fold.open = true; });
  });
  addEventListener("afterprint", () => unfolded.forEach((fold) => { fold.open = false; }));
  const drawAll = () => Promise.all(all(".chart").filter(visible).map(embed));
  addEventListener("load", () => (window.requestIdleCallback || setTimeout)(drawAll));

  // Visible charts are redrawn first, the others afterwards.
  const later = (work) => requestAnimationFrame(() => setTimeout(work));
  const onScreen = (place) => {
    const { top, bottom } = place.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };
  const hideRuns = () => {
    for (const place of all(".chart")) {
      const view = views.get(place.dataset.chart);
      if (!view || place.dataset.chart.startsWith("pair")) continue;
      view.signal("hidden", [...shown.hidden]);
      if (onScreen(place)) view.runAsync(); else later(() => view.runAsync());
    }
  };

  all(".legend button").forEach((button) => button.addEventListener("click", () => {
    const run = Number(button.dataset.run), on = button.getAttribute("aria-pressed") !== "true";
    all(`.legend [data-run="${run}"]`).forEach((same) => same.setAttribute("aria-pressed", String(on)));
    if (on) shown.hidden.delete(run); else shown.hidden.add(run);
    hideRuns();
    readOut();
  }));

  all(".switch input").forEach((input) => input.addEventListener("change", () => {
    shown.bound = input.value === "bounded";
    all(`.switch input[value="${input.value}"]`).forEach((other) => { other.checked = true; });
    document.body.classList.toggle("show-bounded", shown.bound);
    document.body.classList.toggle("show-counted", !shown.bound);
    const view = views.get("accuracy");
    if (view) view.signal("bound", shown.bound).runAsync();
    readOut();
  }));

  all("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    const view = views.get("accuracy");
    if (!view) return;
    const [low, high] = view.scale("x").domain(), most = wholeAxis[1];
    const width = button.dataset.zoom === "reset" ? most : Math.min(most, (high - low) * (button.dataset.zoom === "in" ? 0.5 : 2));
    const from = Math.max(0, Math.min(most - width, data.probes[shown.row].r - width / 2));
    view.signal("zoom_r", [from, from + width]).runAsync();
  }));

  const probe = one("#probe");
  const moveProbe = (row) => {
    shown.row = row;
    probe.value = String(row);
    probe.setAttribute("aria-valuetext", `radius ${data.probes[row].text}`);
    const view = views.get("accuracy");
    if (view) view.signal("pinned", row).runAsync();
    readOut();
  };
  if (probe) {
    probe.addEventListener("input", () => moveProbe(Number(probe.value)));
    moveProbe(Math.floor(data.probes.length / 4));
  }

  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // A page opened from a file may not use the clipboard API; the older command often works.
      const area = element("textarea", text, "unseen");
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  all("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    const done = await copied(data.copies[button.dataset.copy][button.dataset.format]);
    button.focus();
    say(done ? `Table copied as ${button.dataset.format}.` : "The browser does not allow copying.");
    const before = button.dataset.format;
    button.textContent = done ? "copied" : "not allowed";
    setTimeout(() => { button.textContent = before; }, 1500);
  }));

  const choose = (select, places, key) => {
    if (!select) return;
    select.addEventListener("change", () => {
      places.forEach((place) => { place.hidden = place.dataset[key] !== select.value; });
      all(".chart").filter(visible).forEach(embed);
    });
  };
  choose(one("#class-radius"), all(".classes-at"), "at");
  choose(one("#pair"), all(".pair"), "pair");
  choose(one("#gallery-run"), all(".gallery"), "run");

  const arrange = () => {
    const order = one("#gallery-sort").value, kind = one("#gallery-kind").value;
    const key = order.replace("-", ""), sign = order.startsWith("-") ? -1 : 1;
    for (const list of all(".gallery:not([hidden]) .tiles")) {
      const tiles = all(".tile", list);
      tiles.sort((a, b) => sign * (a.dataset[key] - b.dataset[key]) || a.dataset.index - b.dataset.index);
      tiles.forEach((tile) => { tile.hidden = kind !== "" && tile.dataset.kind !== kind; });
      list.append(...tiles);
    }
    const gallery = one(".gallery:not([hidden])");
    one("#gallery-count").textContent = `${all(".tile:not([hidden])", gallery).length} shown`;
  };
  ["#gallery-sort", "#gallery-kind", "#gallery-run"].map(one).forEach((select) => {
    if (select) select.addEventListener("change", arrange);
  });
  if (one("#gallery-sort")) arrange();

  const themes = ["auto", "light", "dark"];
  const theme = one("#theme");
  const wear = (name) => {
    document.documentElement.dataset.theme = name;
    one("#theme-name").textContent = name;
  };
  if (theme) {
    const kept = (() => { try { return localStorage.getItem("smoothcert-theme"); } catch { return null; } })();
    wear(themes.includes(kept) ? kept : "auto");
    theme.addEventListener("click", () => {
      const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
      wear(next);
      try { localStorage.setItem("smoothcert-theme", next); } catch { /* a file may have no storage */ }
    });
  }

  // A reload keeps the state of the page: choices by value, runs by name, folds by their title.
  const choices = "select[id], #probe", folds = (open) => all("details").filter((fold) => fold.open === open);
  const title = (fold) => fold.querySelector("summary").textContent;
  const remember = () => sessionStorage.setItem("smoothcert-view", JSON.stringify({
    top: scrollY,
    bound: shown.bound,
    hidden: [...shown.hidden].map((run) => data.runs[run]),
    chosen: all(choices).map((choice) => [choice.id, choice.value]),
    open: folds(true).map(title),
  }));
  const resume = () => {
    const view = JSON.parse(sessionStorage.getItem("smoothcert-view"));
    if (view === null) return;
    data.runs.forEach((name, run) => { if (view.hidden.includes(name)) one(`.legend button[data-run="${run}"]`)?.click(); });
    if (view.bound) all('.switch input[value="bounded"]').slice(0, 1).forEach((input) => input.click());
    for (const [id, value] of view.chosen) {
      const choice = document.getElementById(id);
      if (!choice || (choice.options && ![...choice.options].some((option) => option.value === value))) continue;
      choice.value = value;
      choice.dispatchEvent(new Event(choice.options ? "change" : "input"));
    }
    folds(false).filter((fold) => view.open.includes(title(fold))).forEach((fold) => { fold.open = true; });
    drawAll().then(() => scrollTo(0, view.top));
  };

  if (data.follow !== null) {
    try { resume(); } catch { /* no storage: the page begins at its top */ }
    const status = element("p", "live: follows the run", "following");
    status.setAttribute("role", "status");
    one(".brand").after(status);
    const tell = (text) => { if (status.textContent !== text) status.textContent = text; };
    const ask = async () => {
      try {
        const answer = await fetch("state", { cache: "no-store" });
        tell("live: follows the run");
        if (!answer.ok || (await answer.text()) === data.follow) return;
      } catch {
        tell("no longer followed: smoothcert report --watch has ended");
        return;
      }
      try { remember(); } catch { /* no storage */ }
      location.reload();
    };
    setInterval(ask, 3000);
  }
})();
