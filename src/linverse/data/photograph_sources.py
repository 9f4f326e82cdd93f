"""Where the photographs come from: packages under free licences, and which of their pictures are photographs.

The patterns name what is taken, because most wallpapers are drawings: every picture that they match was looked at. What is known of
authors and licences stands in notes inside the packages, file by file, which `credits.py` reads; `credit` is what holds for the
package where they are silent.
"""

from __future__ import annotations

from dataclasses import dataclass

from linverse.data.credits import Credit
from linverse.data.packages import Package


@dataclass(frozen=True)
class Source:
    """One package and its photographs."""

    package: Package
    patterns: tuple[str, ...]  # below the package's tree; those of resource files below resources/
    credit: Credit
    notes: str = (
        "package"  # where the credits of single files stand: "readme", "metadata", "debian", or for the whole "package"
    )
    resources: tuple[str, ...] = ()  # Qt resource files (.rcc) to unpack first
    without: tuple[str, ...] = ()  # names among the matches that are no photographs, or bad ones
    series: bool = False  # numbered names are views of one scene, which stay on one side of the split
    signed: float = 0.0  # share of the height that a signature takes at the bottom, cut away


ACTIVITIES = "resources/gcompris/src/activities"
PLASMA = (
    *("BytheWater", "ColdRipple", "ColorfulCups", "DarkestHour", "EveningGlow", "FallenLeaf", "Grey", "Kite"),
    *("OneStandsOut", "Path", "summer_1am"),
)
SOURCES: tuple[Source, ...] = (
    Source(
        Package("apt", "gcompris-qt-data"),
        (
            f"{ACTIVITIES}/erase/resource/*.webp",
            f"{ACTIVITIES}/explore_monuments/resource/*/*.webp",
            f"{ACTIVITIES}/explore_*_animals/resource/animals/*.webp",
            f"{ACTIVITIES}/explore_world_music/resource/music/*.webp",
            f"{ACTIVITIES}/clickgame/resource/sea*.webp",
            f"{ACTIVITIES}/details/resource/image/*_background.webp",
        ),
        Credit("GPL-3+", "the GCompris authors"),
        notes="readme",
        resources=(
            *("erase", "explore_monuments", "explore_world_animals", "explore_farm_animals", "explore_world_music"),
            *("clickgame", "details"),
        ),
        without=("*Gogh*", "Portrait*", "Eglise*"),  # paintings
    ),
    Source(
        Package("apt", "krank"),
        ("usr/share/games/krank/levels/unera-backgrounds/*.jpg",),
        Credit("public domain", "Slava Anishenko"),
    ),
    Source(
        Package("apt", "lomiri-wallpapers-16.04"),
        ("usr/share/backgrounds/*_by_*.jpg",),
        Credit("CC-BY-SA-4.0", "UBports contributors"),
        notes="debian",
        without=("analogpattern*", "umang*"),  # drawings
    ),
    Source(
        Package("apt", "lomiri-wallpapers-20.04"),
        ("usr/share/backgrounds/Kleiber_*.jpg",),
        Credit("CC-BY-SA-3.0", "UBports contributors"),
        notes="debian",
    ),
    Source(
        Package("apt", "mate-backgrounds"),
        ("usr/share/backgrounds/mate/nature/*.jpg",),
        Credit("GPL-2+", "the MATE authors"),
        notes="debian",
    ),
    Source(
        Package("apt", "plasma-workspace-wallpapers"),
        tuple(f"usr/share/wallpapers/{name}/contents/images/*.jpg" for name in PLASMA),
        Credit("GPL-2+", "KDE Visual Design Group"),
        notes="metadata",
    ),
    Source(
        Package("apt", "tuxpaint-data"),
        (
            "usr/share/tuxpaint/templates/*.jpg",
            "usr/share/tuxpaint/starters/reef-back.*",
            "usr/share/tuxpaint/starters/skyline-sf-dusk-back.*",
        ),
        Credit("GPL-2+", "Bill Kendrick"),
        notes="debian",
    ),
    Source(
        Package("apt", "kphotoalbum"),
        ("usr/share/kphotoalbum/demo/*.jpg",),
        Credit("GPL-2+", "Jesper K. Pedersen"),
        series=True,
    ),
    Source(
        Package("npm", "photography", "3.0.0", "af0aa5b251340b355c121a9b2ce7166227d26617d1c5dc339f7f74f99b4db980"),
        ("package/images/fulls/*.jpg",),
        Credit("GPL-3", "Ram Patra"),
        signed=0.04,
    ),
    Source(
        Package("pip", "jpegio", "0.2.8", "096039e2e407288e84d681496f5baf50885b3f023014ba072bce20e12d321438"),
        ("jpegio-0.2.8/tests/images/*.jpg", "jpegio-0.2.8/tests/stegoappdb/covers/*.JPG"),
        Credit("Apache-2.0", "the jpegio authors"),
        without=("test01.jpg", "test0[6-9].jpg", "test10.jpg"),  # loud noise (a standard deviation of 7 to 15 of 255)
        series=True,
    ),
)
