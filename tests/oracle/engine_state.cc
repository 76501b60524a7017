#include "oracle/engine_state.h"

namespace fo::oracle {

Knobs EngineState::admit() {
  ++counts.requests;
  Knobs own = knobs;
  if (knobs.refuse_next > 0) {
    --knobs.refuse_next;
  } else if (knobs.refuse_every > 0 && counts.requests % knobs.refuse_every == 0) {
    own.refuse_next = 1;
  }
  if (own.refuse_next > 0 || counts.requests % knobs.fail_every != 0) {
    own.fail = {};
  } else if (knobs.fail_next > 0 && --knobs.fail_next == 0) {
    knobs.fail = {};
  }
  return own;
}

}  // namespace fo::oracle
