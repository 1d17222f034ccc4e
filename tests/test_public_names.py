"""The public names: sorted, complete, and each where the package says it is."""

import importlib
import subprocess
import sys

import retinue


def test_the_public_names_are_sorted_and_all_there():
    assert retinue.__all__ == sorted(retinue.__all__)
    assert set(retinue._MODULES) == set(retinue.__all__)
    for name in retinue.__all__:
        home = importlib.import_module(f"retinue.{retinue._MODULES[name]}")
        assert getattr(retinue, name) is getattr(home, name)


def test_unknown_names_are_attribute_errors():
    assert not hasattr(retinue, "nope")
    assert set(retinue.__all__) < set(dir(retinue))


def test_importing_the_package_loads_none_of_its_parts():
    code = "import sys, retinue; print([m for m in sys.modules if m.startswith('retinue.')], 'anyio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"
