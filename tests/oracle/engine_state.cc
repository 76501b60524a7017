#include "oracle/engine_state.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace fo::oracle {

EngineState::EngineState(boost::asio::any_io_executor on, EngineOptions with)
    : executor(std::move(on)),
      options(std::move(with)),
      knobs(options.knobs),
      slots(std::make_shared<Slots>(executor)),
      ended(executor) {}

EngineState::~EngineState() = default;

boost::asio::awaitable<void> EngineState::stall() {
  while (!has_ended) co_await ended.wait();
}

void EngineState::end() {
  has_ended = true;
  ended.notify();
}

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
