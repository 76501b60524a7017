// Files of manifests in, manifests out: workers with failover become what runs them, everything
// else passes. Pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pod/dgd/budget.h"
#include "pod/finding.h"
#include "pod/generate/explanation.h"
#include "pod/generate/generate.h"
#include "pod/input_objects.h"
#include "yaml/reader.h"

namespace fo::pod {

struct Manifest {
  yaml::Node root;
  /// As it stood in the input; "" for what was made or changed.
  std::string source;
  /// Made here, not passed on.
  bool generated = false;
  /// Comments of the input's that belong before it where `source` is "": those before the document
  /// that it comes from, or of them, for what is not the first to come from it, Helm's "# Source:".
  std::string head;
};

/// One file.
struct Filtered {
  /// In order: what is generated from a document stands where the document stood. Lists
  /// (kind: List) keep their form as long as nothing in them is replaced, and are taken apart else.
  std::vector<Manifest> manifests;
  Findings findings;
  /// Those of them that are outside any graph deployment: in the config of a KRM function.
  Findings others;
  /// Of every graph deployment, in order; the findings are those above.
  std::vector<DgdExplanation> explanations;

  /// With an error among the findings the manifests are not to be used.
  [[nodiscard]] bool failed() const;
  /// Whether every manifest is one of the input.
  [[nodiscard]] bool untouched() const;
};

/// Of a graph deployment whose services all fail over, nothing is left but what is generated; else
/// the deployment stays, without those services. `inputs` are what the documents may refer to.
/// `budget` is for all that a run generates: an error among the findings says where it was spent.
Filtered filter(const std::vector<yaml::Document>& documents,
                const std::shared_ptr<const InputObjects>& inputs, const GenerateOptions& options,
                Budget& budget);

}  // namespace fo::pod
