"""AutoDist's Saver, over a session's own checkpoints."""

from __future__ import annotations

import os
import re
import typing

from .._errors import UsageError

if typing.TYPE_CHECKING:
    from .. import Session, Steps


class Saver:
    """Writes and reads checkpoints with the model's own names, whatever the strategy.

    A checkpoint has all of a session: parameters, buffers, the optimizer's state.
    """

    def save(
        self,
        sess: Session | Steps,
        save_path: str | os.PathLike[str],
        global_step: int | None = None,
    ) -> str:
        """Write a checkpoint below a folder; every rank calls it.

        Parameters
        ----------
        sess : Session or Steps
        save_path : path
            The folder.
        global_step : int, optional
            Taken for AutoDist's sake: a checkpoint is named by the session's own count of steps.

        Returns
        -------
        str
            The checkpoint's path, ``save_path/step-N``.
        """
        if global_step is not None and not isinstance(global_step, int):
            raise UsageError(f"Saver: global_step={global_step!r}, a whole number expected")
        sess.save(save_path)
        return os.path.join(os.fsdecode(save_path), f"step-{sess.step}")

    def restore(self, sess: Session | Steps, save_path: str | os.PathLike[str]) -> None:
        """Load a checkpoint before the first step; every rank calls it.

        Parameters
        ----------
        sess : Session or Steps
        save_path : path
            The folder, of which the newest sound one is taken, or what :meth:`save` returned, if
            that is the newest.

        Raises
        ------
        UsageError
            Where a newer one than the one that was named has been loaded.
        """
        folder, name = os.path.split(os.fsdecode(save_path).rstrip("/"))
        named = re.fullmatch(r"step-(\d+)", name)
        step = sess.load(folder or ".") if named else sess.load(save_path)
        if named and step != int(named[1]):
            raise UsageError(
                f"Saver: {save_path} was to be restored, and the newest sound checkpoint of its "
                f"folder is step-{step}. Move the others away, or restore the folder."
            )
