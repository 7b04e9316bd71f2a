"""What importing needs: the core lives on torch alone, and nothing is loaded too early.

Each test is a process of its own, since modules once imported stay.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

# Hides every distribution but torch and what it requires; `{allowed}` on top.
BLOCKER = """
    import re, sys
    from importlib.machinery import PathFinder
    from importlib.metadata import PackageNotFoundError, packages_distributions, requires

    def with_requirements(name, seen):
        if name in seen:
            return seen
        seen.add(name)
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            return seen
        for line in lines:
            if "extra ==" not in line:
                with_requirements(normal(re.match(r"[\\w.-]+", line)[0]), seen)
        return seen

    def normal(name):
        return re.sub(r"[-_.]+", "-", name).lower()

    allowed = (with_requirements("torch", set()) | {"alphaiou"}) - {"triton", "numpy"}
    hidden = {
        module
        for module, owners in packages_distributions().items()
        if not {normal(owner) for owner in owners} & allowed
    }

    class Blocker(PathFinder):
        asked = set()

        @classmethod
        def find_spec(cls, name, path=None, target=None):
            top = name.partition(".")[0]
            if top in hidden:
                cls.asked.add(top)
                return None
            return super().find_spec(name, path, target)

    sys.meta_path[:] = [Blocker if f is PathFinder else f for f in sys.meta_path]
    assert {"matplotlib", "rich", "tyro", "torchvision", "numpy", "pytest", "triton"} <= hidden
    assert "jaxtyping" in hidden
    assert not {"torch", "alphaiou"} & hidden
"""

NO_NUMPY = "ignore:Failed to initialize NumPy:UserWarning"  # torch's own, where there is none


def run(code, *, blocked=False):
    """Run Python in a process of its own; what it prints."""
    code = textwrap.dedent(BLOCKER) * blocked + textwrap.dedent(code)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-W", NO_NUMPY, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_package_alone_loads_nothing():
    """Names are resolved when first used."""
    run(
        """
        import sys
        import alphaiou
        heavy = {"torch", "numpy", "jaxtyping", "triton"} & set(sys.modules)
        assert not heavy, heavy
        own = {name for name in sys.modules if name.startswith("alphaiou.")}
        assert own == {"alphaiou._version"}, own
        assert alphaiou.__version__ and "convert_boxes" in dir(alphaiou)
        alphaiou.convert_boxes
        assert "alphaiou.boxes" in sys.modules and "torch" in sys.modules
        assert "alphaiou.losses" not in sys.modules
        """
    )


def test_the_losses_load_no_compiler_and_no_extras():
    run(
        """
        import sys
        import torch
        before = set(sys.modules)
        from alphaiou import AlphaIoULoss, box_iou, losses, properties
        tops = {name.partition(".")[0] for name in set(sys.modules) - before}
        extras = tops & {"triton", "matplotlib", "rich", "tyro", "torchvision", "scipy", "pandas"}
        assert not extras, extras
        assert "torch._dynamo" not in sys.modules and "torch._inductor" not in sys.modules
        own = {name.split(".")[1] for name in sys.modules if name.startswith("alphaiou.")}
        core = {"boxes", "numerics", "oriented", "losses", "properties"}
        assert own == core | {"_shapes", "_version"}, own
        """
    )


def test_the_core_needs_torch_alone():
    out = run(
        """
        import alphaiou, alphaiou.losses, alphaiou.boxes, alphaiou.properties
        import torch
        boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0]], requires_grad=True)
        target = torch.tensor([[1.0, 0.0, 3.0, 2.0]])
        for kind in alphaiou.losses.kinds.kinds_of():
            loss = alphaiou.alpha_iou_loss(boxes, target, kind=kind, reduction="mean")
            loss.backward()
        module = alphaiou.AlphaIoULoss("ciou", modifiers=("wise_v3",))
        assert module(boxes, target).isfinite()
        print(alphaiou.box_iou(boxes, target).item(), alphaiou.properties.turning_point(2.0))
        assert not hidden & {name.partition(".")[0] for name in sys.modules}
        """,
        blocked=True,
    )
    assert out.split() == ["0.3333333432674408", "0.5"]


def test_without_triton_the_reference_serves():
    run(
        """
        import importlib.util
        assert importlib.util.find_spec("triton") is None
        import torch
        from alphaiou import alpha_iou_loss
        boxes = torch.rand(5, 4, requires_grad=True)
        losses = [
            alpha_iou_loss(boxes, torch.rand(5, 4).fill_(0.5), kind="ciou", backend=backend)
            for backend in ("auto", "reference")
        ]
        assert torch.allclose(*losses)
        losses[0].sum().backward()
        """,
        blocked=True,
    )


@pytest.mark.parametrize(
    "statement",
    [
        "from alphaiou import box_iou",
        "import alphaiou; alphaiou.KINDS",
        "from alphaiou import losses",
    ],
)
def test_an_error_in_a_lazy_module_is_shown(statement):
    """Python turns an AttributeError behind ``from package import name`` into another error."""
    run(
        f"""
        import traceback
        import torch
        del torch.autograd.Function  # as with a torch that lacks what a module needs
        try:
            {statement}
        except Exception:
            shown = traceback.format_exc()
        assert "cannot import name" not in shown, shown
        assert "has no attribute 'Function'" in shown and "numerics.py" in shown, shown
        """
    )


def test_unknown_names_are_attribute_errors():
    run(
        """
        import alphaiou
        assert not hasattr(alphaiou, "no_such_name")
        try:
            from alphaiou import no_such_name
        except ImportError as error:
            assert "cannot import name 'no_such_name'" in str(error)
        """
    )
