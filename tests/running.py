"""Programs that tests run, and what tests wait for. A limit is only reached where a test fails."""

import subprocess
import time

SECONDS = 200


def run(words, code=0, seconds=SECONDS, **options):
    """The finished program, with what it printed; it must end with this exit code."""
    done = subprocess.run([str(each) for each in words], capture_output=True, text=True, errors="replace",
                          timeout=seconds, **options)
    said = f"{words}: exit code {done.returncode}, {code} expected\n{done.stdout}{done.stderr}"
    assert done.returncode == code, said
    return done


def wait_until(happens, seconds=SECONDS, every=0.01, said=lambda: "nothing came"):
    """Until it comes true; an AssertionError, with what is said then, where it has not within the seconds."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, said()
        time.sleep(every)
