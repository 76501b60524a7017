// A rank's process: what `fo-refengine rank` runs. It knows nothing but one socket to the engine.
#pragma once

namespace fo::refengine {

/// Closes every descriptor but 0, 1 and 2, as Python's spawn does (a lock's among them), then
/// serves the engine on descriptor 0 until it closes its end or something fails; the failure is
/// told to the engine, which reports it. Returns the exit status.
int run_rank_process();

}  // namespace fo::refengine
