#include "canary/judge/repetitions.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace fo::canary {

Repetitions::Next Repetitions::conclude(Finding finding, Cause cause, Attempt attempt) {
  conclusion_ = {.finding = finding, .cause = std::move(cause), .attempt = std::move(attempt)};
  return Next::kDone;
}

Repetitions::Next Repetitions::add(const Attempt& attempt) {
  return wrong_ ? add_repetition(attempt) : add_question(attempt);
}

Repetitions::Next Repetitions::add_question(const Attempt& attempt) {
  if (attempt.outcome == Outcome::kPass) return conclude(Finding::kPass, {}, attempt);
  if (attempt.outcome == Outcome::kMismatch) {
    wrong_ = attempt;
    return Next::kSame;
  }
  if (attempt.outcome != Outcome::kNeutral) {
    const bool is_slow = attempt.outcome == Outcome::kSlow;
    if (!is_slow || !failed_ || failed_->outcome == Outcome::kSlow) failed_ = attempt;
  } else if (!failed_) {
    return conclude(Finding::kNeutral, {}, attempt);
  }
  if (questions_left_ > 0) {
    --questions_left_;
    return Next::kAnother;
  }
  const bool is_weak = failed_->outcome == Outcome::kSlow;
  Cause cause{.reason = std::string(to_string(failed_->outcome)) + ": " + failed_->reason,
              .evidence = failed_->evidence};
  return conclude(is_weak ? Finding::kWeak : Finding::kFault, std::move(cause), *failed_);
}

Repetitions::Next Repetitions::add_repetition(const Attempt& attempt) {
  if (attempt.outcome == Outcome::kMismatch) {
    wrong_ = attempt;
    return Next::kVote;
  }
  const std::string what = "wrong tokens at canary " + base::quoted(wrong_->canary);
  const bool is_answered = attempt.outcome == Outcome::kPass || attempt.outcome == Outcome::kSlow ||
                           attempt.outcome == Outcome::kDrift;
  if (!is_answered && repeats_left_ > 0) {
    --repeats_left_;
    return Next::kSame;
  }
  const bool is_neutral = attempt.outcome == Outcome::kNeutral;
  const std::string silence = std::string(", and its repetition ") +
                              (is_neutral ? "decided nothing: " : "was not answered: ") +
                              attempt.reason;
  Cause cause{.reason = what + (is_answered ? ", but not at its repetition" : silence),
              .evidence = wrong_->evidence};
  Attempt decisive = is_answered ? *wrong_ : attempt;
  decisive.reason = cause.reason;
  decisive.evidence = wrong_->evidence;
  return conclude(Finding::kFault, std::move(cause), std::move(decisive));
}

void Repetitions::decide(Decision decision) {
  Cause cause{.reason = "wrong tokens", .evidence = wrong_->evidence};
  switch (decision) {
    case Decision::kConviction:
      conclude(Finding::kConviction, std::move(cause), *wrong_);
      return;
    case Decision::kStale:
      conclude(Finding::kNeutral, {}, *wrong_);
      return;
    case Decision::kUndecided:
      cause.reason += "; its set has no majority";
      conclude(Finding::kWeak, std::move(cause), *wrong_);
      return;
  }
}

}  // namespace fo::canary
