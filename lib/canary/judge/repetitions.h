// One check of a worker's answers with its repetitions: it decides which question is next, and what
// all answers show. Pure; the caller asks the questions.
//
//     asked               the attempt              next
//     first, or another   pass                     done: a pass
//     canary              wrong tokens             the same canary again
//                         slow, drift, no answer   another canary, up to `retries` times; then
//                                                  done: a weak finding if all were slow, else a
//                                                  fault
//                         neutral                  if one has failed before, as above; else done:
//                                                  neutral
//     the same canary     wrong tokens             the vote
//     again               no answer, neutral       the same canary again, up to `retries` more
//                                                  times; then done: a fault
//                         right tokens             done: a fault, for the wrong ones before
//     the vote            conviction               done: a conviction
//                         stale                    done: neutral
//                         undecided                done: a weak finding
//
// So only answers clear a worker that has failed; missing answers do not.
#pragma once

#include <optional>

#include "canary/check/attempt.h"
#include "canary/judge/vote.h"
#include "canary/judge/worker_health.h"

namespace fo::canary {

/// The result of a check.
struct Conclusion {
  Finding finding = Finding::kNeutral;
  Cause cause = {};
  /// The attempt that decided. If there were wrong tokens, its evidence is about them.
  Attempt attempt = {};
};

class Repetitions {
 public:
  enum class Next {
    kAnother,  // ask another canary
    kSame,     // ask the same canary again
    kVote,     // ask other workers the same canary
    kDone,
  };

  explicit Repetitions(unsigned retries) : questions_left_(retries), repeats_left_(retries) {}

  /// Adds the first attempt, or the next one after kAnother or kSame.
  Next add(const Attempt& attempt);
  /// Ends the check after kVote.
  void decide(Decision decision);

  /// Returns the attempt with the wrong tokens; to be called after kVote.
  [[nodiscard]] const Attempt& suspect() const { return *wrong_; }
  /// To be called after kDone or decide().
  [[nodiscard]] const Conclusion& conclusion() const { return conclusion_; }

 private:
  Next add_question(const Attempt& attempt);
  Next add_repetition(const Attempt& attempt);
  Next conclude(Finding finding, Cause cause, Attempt attempt);

  unsigned questions_left_;
  unsigned repeats_left_;
  /// The last failed attempt without wrong tokens. A slow attempt does not replace one that failed
  /// in another way.
  std::optional<Attempt> failed_;
  /// The last attempt with wrong tokens.
  std::optional<Attempt> wrong_;
  Conclusion conclusion_;
};

}  // namespace fo::canary
