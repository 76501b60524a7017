// The common fixture of all drivers' tests: a loop, children, and the calls as plain functions.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "engine/drivers/driver.h"
#include "loop/children.h"
#include "loop/test_loop.h"
#include "engine/stand_in.h"
#include "support/failure.h"
#include "support/fds.h"

namespace fo::test {

class DriverTest : public FdCounting {
 protected:
  using SleepMode = engine::SleepMode;

  void use(const engine::DriverOptions& options) {
    driver_ = engine::make_driver(options, children_);
  }

  std::optional<std::string> check_health(const base::Deadline& deadline = soon()) {
    return loop_.run(driver_->check_health(deadline));
  }
  void sleep(SleepMode mode = SleepMode::kAbort, const base::Deadline& deadline = soon()) {
    loop_.run(driver_->sleep(deadline, mode));
  }
  void wake(const base::Deadline& deadline = soon()) { loop_.run(driver_->wake(deadline)); }
  void prove(const base::Deadline& deadline = soon()) { loop_.run(driver_->prove(deadline)); }
  std::optional<bool> is_idle() { return loop_.run(driver_->is_idle(soon())); }
  std::optional<double> progress() { return loop_.run(driver_->progress(soon())); }

  TestLoop loop_;
  loop::Children children_{loop_.io()};
  std::unique_ptr<engine::EngineDriver> driver_;
};

}  // namespace fo::test
