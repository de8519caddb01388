"""The zoo: trained networks of a checkout, `experiments/models/NAME.safetensors` with a card each, named `zoo:NAME`.

A folder is searched if it is named by $SMOOTHCERT_ZOO, or is experiments/models in the current folder or in the
checkout that this package runs from, in this order. The weights must have the SHA-256 that their card states.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.errors import ModelError
from smoothcert.models.digests import file_digest
from smoothcert.strict_json import strict_loads
from smoothcert.user_code import ZOO, is_zoo_name

VARIABLE = "SMOOTHCERT_ZOO"
CARD_FORMAT = 1
_PLACE = Path("experiments") / "models"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FIELDS = {
    "format", "name", "data", "arch", "objective", "sigma", "epochs", "seed", "accuracy", "acr", "digest", "command",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ZooModel:
    """A network of the zoo. card: as its file has it."""

    name: str
    weights: Path
    card: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the weights, as the card states it."""
        return str(self.card["digest"])

    @property
    def label(self) -> str:
        """For descriptions: the name, and the beginning of the digest."""
        return f"{ZOO}{self.name} ({self.digest[:12]})"


def list_folders() -> list[Path]:
    """The folders that are searched and exist, in order."""
    variable = os.environ.get(VARIABLE)
    checkout = Path(__file__).resolve().parents[3]
    places = [Path.cwd() / _PLACE, checkout / _PLACE]
    if variable:
        folder = Path(variable).expanduser()
        if not folder.is_dir():
            raise ModelError(f"${VARIABLE} is {folder}, which is not a folder: expected one with NAME.safetensors")
        places.insert(0, folder)
    return [place for place in dict.fromkeys(place.resolve() for place in places) if place.is_dir()]


def list_zoo() -> list[ZooModel]:
    """All networks, by name. Of several with the same name, the first that is found counts."""
    found: dict[str, ZooModel] = {}
    for folder in list_folders():
        for file in sorted(folder.glob("*.json")):
            found.setdefault(file.stem, read_model(folder, file.stem))
    return [found[name] for name in sorted(found)]


def find_zoo_model(spec: str | Path) -> ZooModel:
    """The network that `zoo:NAME` names, with its weights checked against its card."""
    name = str(spec).removeprefix(ZOO)
    check_name(name)
    folders = list_folders()
    for folder in folders:
        if (folder / f"{name}.json").is_file():
            model = read_model(folder, name)
            check_weights(model)
            return model
    raise ModelError(f"there is no {ZOO}{name}: {_describe_zoo(folders)}")


def check_name(name: str) -> None:
    """Refuse names that could be paths."""
    if not _NAME.fullmatch(name):
        raise ModelError(
            f"{ZOO}{name} does not name a network of the zoo: expected zoo:NAME, such as zoo:mnist-lenet-0.5"
        )


def locate_model(place: str | Path) -> Path:
    """The file of a model that is no code: that of a network of the zoo, or the path itself."""
    return find_zoo_model(place).weights if is_zoo_name(str(place)) else Path(place)


def read_model(folder: Path, name: str) -> ZooModel:
    """A network by its card, which must be complete; the weights are not read."""
    file = folder / f"{name}.json"
    try:
        card = strict_loads(file.read_bytes())
    except OSError as error:
        raise ModelError(f"the card {file} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the card {file} is damaged: {error}") from error
    if not isinstance(card, dict) or card.get("format") != CARD_FORMAT or not card.keys() >= _FIELDS:
        missing = sorted(_FIELDS - card.keys()) if isinstance(card, dict) else []
        detail = f"it lacks {', '.join(missing)}" if missing else f"expected format {CARD_FORMAT}"
        raise ModelError(f"{file} is not the card of a network: {detail}; write it with python -m experiments.zoo")
    if card["name"] != name:
        raise ModelError(f"{file} is the card of {card['name']}: name both files after the network")
    return ZooModel(name, folder / f"{name}.safetensors", card)


def check_weights(model: ZooModel) -> None:
    """Raise a ModelError unless the weights are those that the card is about."""
    if not model.weights.is_file():
        raise ModelError(f"the card of {ZOO}{model.name} has no weights: there is no {model.weights}; restore the file")
    digest = file_digest(model.weights)
    if digest != model.digest:
        raise ModelError(
            f"{model.weights} is not the network of its card: its SHA-256 is {digest}, and the card states "
            f"{model.digest}; restore both files, or name another file by its path"
        )


def _describe_zoo(folders: list[Path]) -> str:
    names = [model.name for model in list_zoo()]
    if names:
        return f"there are {', '.join(ZOO + name for name in names)}"
    where = f"{', '.join(map(str, folders))} holds none" if folders else f"there is no folder {_PLACE} here"
    return (
        f"{where}. Run in a checkout of smoothcert, name a folder with NAME.safetensors and NAME.json in ${VARIABLE}, "
        "or give the path of a file. Code in a module called zoo must be named otherwise"
    )
