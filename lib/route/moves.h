// Moves requests away from workers that should have none any more: a drained worker's streams
// continue on other workers before it ends, and a convicted worker's answers can't be trusted.
#pragma once

#include <memory>

#include "route/router_parts.h"

namespace fo::route {

/// To be called about twice a second. A worker's requests may end by themselves for half of
/// `options.resume.drain`, from when its record says that it is draining, or an operator drains it.
/// Then those that can continue move, some at a time, so that they are elsewhere when the other
/// half is over: those of the highest tier first, then those with the earliest deadline. Another
/// worker of the set pulls the KV cache of the old one, or computes the tokens itself if that is
/// faster or the transfer fails (resume/kv_move.h), while the old one still produces tokens: the
/// stream stops for the time of one token only. A convicted worker's requests begin again on other
/// workers if nothing was delivered; the others end with an error.
void move_requests(const std::shared_ptr<RouterParts>& parts);

}  // namespace fo::route
