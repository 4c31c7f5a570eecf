"""GPUs in figures: lanes, lines, reasons; what a page is sent of them."""

import json
from dataclasses import replace

import pytest

from tests.test_figures import Page
from workbench.figures.colors import DARK, GPUS, LIGHT, contrast, gpu_color
from workbench.figures.gpu_lines import COLUMNS, PLOTS
from workbench.figures.layout import LAUNCHED, TITLES, build
from workbench.figures.live import LiveFigure
from workbench.figures.report import report_html
from workbench.hardware.gauges import GpuSample
from workbench.monitor.events import Batch, NoGpus, WorkerSample
from workbench.runs.run import Run

START = 1_700_000_000.0
LOST = "the GPU has fallen off the bus"


def sample(seconds, gpu=0, **changes):
    values = {
        "utilisation": 50.0,
        "memory_used": 8 * 2**30,
        "memory_ours": 2 * 2**30,
        "memory_total": 16 * 2**30,
        "power": 200.0,
        "power_limit": 300.0,
        "temperature": 60.0,
        "clock": 1000.0,
        "clock_max": 1500.0,
        "throttle": (),
        "absent": {"nvlink_rx": "not supported by this GPU", "pcie_rx": "not read yet"},
    }
    return GpuSample(f"GPU-{gpu}", f"SIMULATED GPU {gpu}", gpu, "a", START + seconds, **(values | changes))


def lost(seconds, gpu=0):
    each = sample(seconds, gpu)
    return GpuSample(each.uuid, each.name, gpu, "a", each.time, absent={"utilisation": LOST, "power": LOST})


def batch(*samples, no_gpus=None, recorded=False):
    return Batch(max((each.time for each in samples), default=START), gpus=samples, no_gpus=no_gpus, recorded=recorded)


def shown(*batches):
    figure, page = LiveFigure(), Page()
    for each in batches:
        figure.feed([each])
        page.apply(figure.patches())
    return page


def titled(**changes):
    """Return a page, and the titles of the plots that any figure has."""
    page = shown(*(batch(replace(sample(second), **changes)) for second in range(2)))
    return page, [page.sources.get(f"{name}_title", {}).get("text") for name in TITLES]


def test_all_plots_of_a_figure_say_that_its_gpus_are_simulated():
    page, titles = titled(simulated=True)
    names = ("Tasks", "Progress", "CPU, % of a core", "Memory, GiB")
    assert titles == [f"{name} · SIMULATED GPUs" for name in names]
    assert all("SIMULATED" in page.sources[f"gpu_{each.name}_title"]["text"] for each in PLOTS)


def test_a_figure_with_gpus_says_what_the_end_of_a_task_means_there():
    page, _ = titled(name="NVIDIA H200")
    assert LAUNCHED in page.sources["kinds"]["text"]
    assert LAUNCHED not in shown(Batch(START, samples=())).sources["kinds"]["text"]


def test_a_figure_that_is_told_of_simulated_gpus_says_so_before_anything_has_come():
    page = Page()
    page.apply(LiveFigure(simulated=True).patches())
    assert all(page.sources[f"{name}_title"]["text"].endswith(" · SIMULATED GPUs") for name in TITLES)


def test_the_tasks_of_a_worker_with_a_gpu_of_its_own_are_named_after_it():
    told = WorkerSample("tls://a:1", "GPU-1", START, cpu=10.0, memory=1, memory_limit=2, spilled=0, n_executing=0)
    page = shown(replace(batch(sample(0, 0), sample(0, 1)), samples=(told,)))
    assert "worker GPU 1" in page.sources["worker_names"]["text"]


def test_memory_that_nobody_can_tell_has_a_reason_and_no_empty_plot():
    shared = {"memory_used": None, "memory_total": None, "memory_ours": 0}
    unified = sample(0, **shared, absent={"memory_used": "the GPU shares the memory of its machine"})
    page = shown(batch(unified))
    assert page.sources["gpu_axes"]["shown"][1] is False
    assert "No memory: the GPU shares" in page.sources["gpu_words"]["text"]


def test_other_gpus_are_named_by_their_own_plots_alone():
    page, titles = titled(name="NVIDIA H200")
    assert titles == ["Tasks", "Progress", "CPU, % of a core", "Memory, GiB"]
    assert page.sources["gpu_use_title"]["text"] == "GPU use, % · NVIDIA H200"


def test_each_gpu_has_a_lane_and_its_own_colour():
    page = shown(*(batch(*(sample(second, gpu) for gpu in range(8))) for second in range(3)))
    assert page.sources["gpu_lanes"]["label"] == [f"GPU {index}" for index in range(8)]
    use = page.sources["gpu_use"]
    assert len(use["left"]) == 16
    assert len(set(use["color"])) == 8
    assert use["bottom"][0] - use["top"][0] == pytest.approx(0.42)
    assert use["text"][0] == "50 % busy"


def test_memory_shows_all_that_is_used_and_what_is_ours():
    page = shown(batch(sample(0)), batch(sample(1)))
    memory = page.sources["gpu_memory"]
    assert (memory["y1"], memory["alpha"]) == ([8.0, 2.0], [1.0, 0.45])
    assert memory["text"] == ["8 GiB used", "2 GiB used by our workers"]
    assert page.sources["gpu_limits"]["memory"] == [16.0]


def test_the_model_stands_in_every_title():
    page = shown(batch(sample(0), sample(0, 1)))
    assert all(page.sources[f"gpu_{each.name}_title"]["text"].endswith("· SIMULATED GPU") for each in PLOTS)


def test_what_no_gpu_tells_has_no_plot_but_a_reason():
    page = shown(batch(sample(0)), batch(sample(1)))
    there = {quantity.name: on for quantity, on in zip(PLOTS, page.sources["gpu_axes"]["shown"], strict=True)}
    assert there == {each.name: each.name not in ("pcie", "nvlink") for each in PLOTS}
    words = page.sources["gpu_words"]["text"]
    assert "No NVLink throughput: not supported by this GPU." in words
    assert "PCIe" not in words


def test_a_gpu_without_values_and_reasons_is_named():
    page = shown(batch(sample(0), sample(0, 1)), batch(sample(1), replace(lost(1, 1), absent={})))
    assert "GPU 1: it reports no values; the others go on." in page.sources["gpu_words"]["text"]


def test_a_lost_gpu_is_named_and_the_others_go_on():
    page = shown(
        *(batch(sample(second), sample(second, 1)) for second in range(2)),
        *(batch(sample(second), lost(second, 1)) for second in range(2, 4)),
    )
    assert page.sources["gpu_lanes"]["label"] == ["GPU 0", "GPU 1 lost"]
    assert f"GPU 1: {LOST}; the others go on." in page.sources["gpu_words"]["text"]
    ends = {
        gpu: max(
            x
            for x, of in zip(page.sources["gpu_use"]["right"], page.sources["gpu_use"]["gpu"], strict=True)
            if of == gpu
        )
        for gpu in ("GPU 0", "GPU 1")
    }
    assert ends == {"GPU 0": 1000 * (START + 3), "GPU 1": 1000 * (START + 1)}


def test_a_clock_that_is_held_back_is_seen_in_the_lane():
    idle, capped = {"throttle": ("idle",)}, {"throttle": ("power cap",)}
    page = shown(*(batch(sample(second, **(capped if second in (2, 3) else idle))) for second in range(6)))
    use = page.sources["gpu_use"]
    held = [row for row, text in enumerate(use["text"]) if text == "held back: power cap"]
    assert min(use["left"][row] for row in held) == 1000 * (START + 1)
    assert max(use["right"][row] for row in held) == 1000 * (START + 3)
    assert "clock held back" in page.sources["gpu_words"]["text"]


def test_without_gpus_a_page_is_sent_nothing_of_them():
    page = shown(batch(no_gpus=(NoGpus("a", "No NVIDIA driver was found.", False),)))
    assert not [name for name in page.sources if name.startswith("gpu_")]


def test_a_host_whose_gpus_cannot_be_read_has_one_line():
    page = shown(batch(no_gpus=(NoGpus("a", "The NVIDIA driver doesn't answer.", True),)))
    assert page.sources["gpu_words"]["text"] == "<div>a: The NVIDIA driver doesn&#39;t answer.</div>"
    assert page.sources["gpu_lanes"]["label"] == []


def test_an_hour_of_eight_gpus_is_thinned_and_columns_stay_equal():
    figure = LiveFigure()
    figure.feed(
        [batch(*(sample(second / 4, gpu, utilisation=second % 100) for gpu in range(8))) for second in range(14_400)]
    )
    for patch in [*figure.patches(), *figure.show_range(1000 * START, 1000 * START + 60_000, 800)]:
        if patch.mode == "set":
            continue
        assert len({len(column) for column in patch.columns.values()}) == 1, patch.source
        assert len(next(iter(patch.columns.values()))) < 20_000, patch.source
        json.dumps(patch.columns, allow_nan=False)


def test_streaming_and_drawing_anew_show_the_same_line():
    streamed = shown(*(batch(sample(second, power=float(second))) for second in range(20)))
    whole = shown(batch(*(sample(second, power=float(second)) for second in range(20))))
    for name in ("x0", "x1", "y0", "y1"):
        assert streamed.sources["gpu_power"][name] == whole.sources["gpu_power"][name]


def test_gpus_of_several_hosts_are_told_apart():
    page = shown(batch(sample(0), replace(sample(0), uuid="GPU-9", host="node-b")))
    assert page.sources["gpu_lanes"]["label"] == ["a GPU 0", "node-b GPU 0"]


def test_the_document_shows_gpus_when_there_are_some():
    page = shown(batch(sample(0), sample(0, 1)), batch(sample(1), sample(1, 1)))
    assert page.sources["gpus"] == {"visible": True}
    assert page.sources["gpu_axes"]["shown"] == [True, True, True, True, True, False, False]
    assert {model.name for model in build(LIGHT).references()} >= set(COLUMNS)


def test_the_report_has_the_gpus():
    run = Run(id="a1", workload="array_sum", status="done", cluster="calm-otter")
    page = report_html(run, batch(*(sample(second) for second in range(4)), recorded=True))
    assert "GPU use, % \\u00b7 SIMULATED GPU" in page
    assert "No NVLink throughput: not supported by this GPU." in page


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colours_of_gpus_are_seen_and_differ(theme):
    colors = [gpu_color(index, theme) for index in range(len(GPUS))]
    assert len(set(colors)) == 8
    assert min(contrast(color, theme.background) for color in colors) >= 3
