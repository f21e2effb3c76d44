"""Variables of the environment that hide GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.doctor.case import Status
from agent.doctor.look import DriverLook
from tests.doctor.conftest import H100, NO_LIBRARY, V100, answers, finding

if TYPE_CHECKING:
    from tests.doctor.conftest import Tree


@pytest.mark.parametrize(
    ("value", "status", "says"),
    [
        (None, Status.OK, "not set"),
        ("0", Status.OK, "1 device(s)"),
        ("0, 1", Status.OK, "2 device(s)"),
        ("GPU-b,MIG-1", Status.OK, "2 device(s)"),
        ("", Status.ERROR, "hides every GPU"),
        ("-1", Status.ERROR, "hides every GPU"),
        ("NoDevFiles", Status.ERROR, "hides every GPU"),
        ("2", Status.ERROR, "of 2 GPU(s) here"),
        ("GPU-x", Status.ERROR, "begins with what is no device"),
        ("0,2,1", Status.WARNING, "'2' is no device, of 2 GPU(s) here; only the 1 before it"),
        ("0,-1", Status.WARNING, "only the 1 before it"),
    ],
)
def test_a_variable_that_hides_gpus(healthy: Tree, value: str | None, status: Status, says: str) -> None:
    if value is not None:
        healthy.environment["CUDA_VISIBLE_DEVICES"] = value
    found = finding("cuda.visible", healthy.case(answers(H100, V100)))
    assert found.status is status
    assert says in found.found


def test_positions_are_not_judged_where_they_count_mig_instances_or_nothing_is_known(healthy: Tree) -> None:
    healthy.environment["CUDA_VISIBLE_DEVICES"] = "3"
    split = replace(H100, mig=True, mig_instances=7)
    assert finding("cuda.visible", healthy.case(answers(split))).status is Status.OK
    assert finding("cuda.visible", healthy.case(DriverLook("hung", step="nvmlInit"))).status is Status.OK


@pytest.mark.parametrize("value", ["void", "none"])
def test_a_container_that_keeps_the_gpus_out(tree: Tree, value: str) -> None:
    tree.environment["NVIDIA_VISIBLE_DEVICES"] = value
    assert finding("cuda.visible", tree.case(NO_LIBRARY)).status is Status.SKIPPED, "on a host it says nothing"
    tree.file(".dockerenv")
    assert finding("cuda.visible", tree.case(NO_LIBRARY)).status is Status.ERROR
    assert finding("cuda.visible", tree.case(answers())).status is Status.ERROR
    assert finding("cuda.visible", tree.case(answers(H100))).status is Status.OK, "handed in another way"
