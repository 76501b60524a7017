// A rank's process, which `fo-refengine rank` runs. Its only connection to the engine is one
// socket.
#pragma once

namespace fo::refengine {

/// Closes every descriptor except 0, 1 and 2, for example that of a lock, as Python's spawn does.
/// Then serves the engine on descriptor 0 until it closes its end or an error occurs; the error is
/// sent to the engine, which reports it. Returns the exit status.
int run_rank_process();

}  // namespace fo::refengine
