"""The page as `linverse studio` serves it, for all tests that visit it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from studio_server import Server, served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("gradio", reason="the extra `studio` (gradio) is not installed")
    temporary = tmp_path_factory.mktemp("server")
    with served("mnist", temporary) as running:
        yield running
    assert list(temporary.glob("linverse-studio-*")) == [], "temporary files outlived the server"
