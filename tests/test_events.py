import pytest

from tests.feeds import tasks_of
from workbench.monitor.events import Batch, Task
from workbench.monitor.wire import unpack

ADD = Task("('add-1', 0)", "add", "tcp://a:1", 7, "compute", 10.0, 11.0, 80, "ok")
SUM = Task("sum-2", "sum", "tcp://b:1", 9, "transfer", 11.0, 11.5, 8, "erred")


def test_columns_of_tasks_read_like_a_sequence_of_tasks():
    columns = tasks_of([ADD, SUM, ADD])
    assert list(columns) == [ADD, SUM, ADD]
    assert len(columns) == 3
    assert columns.name.values == ("add", "sum")


def test_an_empty_batch_has_no_tasks():
    batch = Batch(1.0)
    assert len(batch.tasks) == 0
    assert list(batch.tasks) == []
    assert batch.progress is None


def test_events_cannot_be_changed():
    with pytest.raises(AttributeError):
        ADD.start = 0.0


def test_a_message_is_unpacked():
    batch = unpack(
        {
            "time": 12.0,
            "tasks": [
                (("add-1", 0), "sum-2"),
                ("add", "sum"),
                ("tcp://a:1", "tcp://b:1"),
                (7, 9),
                (80, 8),
                ("ok", "erred"),
                ("c", "c"),
                (0, 0),
                ("compute", "transfer"),
                (10.0, 11.0),
                (11.0, 11.5),
            ],
            "progress": {"add": {"total": 2, "done": 1, "erred": 0, "processing": 1}},
        }
    )
    assert list(batch.tasks) == [ADD, SUM]
    assert batch.progress.counts["add"]["total"] == 2
    assert batch.samples == ()
