// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_activations.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace zero::cli {
namespace {

// Bytes for each element of: tokens x hidden, heads x tokens x tokens.
struct LayerCost {
  double linear;
  double scores;
};
// Cross-attention: of the target, of the source, of heads x target x source.
struct CrossCost {
  double target;
  double source;
  double scores;
};

LayerCost layer_cost(Keeping keeping) {
  return keeping == Keeping::kAutocast ? LayerCost{42, 7} : LayerCost{34, 5};
}

CrossCost cross_cost(Keeping keeping) {
  return keeping == Keeping::kAutocast ? CrossCost{11, 8, 7} : CrossCost{9, 4, 5};
}

double real(uint64_t value) {
  return static_cast<double>(value);
}

class Counter {
 public:
  Counter(const Transformer& shape, Keeping keeping, Recompute recompute)
      : shape_(shape), keeping_(keeping), recompute_(recompute) {}

  double encoder_layer(double tokens) const {
    const LayerCost cost = layer_cost(keeping_);
    double bytes = cost.linear * tokens * real(shape_.hidden);
    if (recompute_ != Recompute::kSelective) {
      bytes += cost.scores * real(shape_.heads) * tokens * tokens;
    }
    // Keys and queries of the relative positions, repeated for every sample.
    if (keeping_ != Keeping::kPaper) {
      bytes += 4 * real(shape_.relative_positions) * real(shape_.hidden);
    }
    return bytes;
  }

  double decoder_layer() const {
    const CrossCost cost = cross_cost(keeping_);
    const double source = real(shape_.tokens), target = real(shape_.target_tokens);
    double bytes = encoder_layer(target) + cost.target * target * real(shape_.hidden) +
                   cost.source * source * real(shape_.hidden);
    if (recompute_ != Recompute::kSelective) {
      bytes += cost.scores * real(shape_.heads) * target * source;
    }
    return bytes;
  }

  // All layers of one kind; recomputed in full, their inputs and one of them whole.
  double layers(uint64_t count, double each, double tokens) const {
    if (recompute_ != Recompute::kFull) return real(count) * each;
    const double input = 2 * tokens * real(shape_.hidden);
    return real(count) * input;
  }

  double total() const {
    const bool has_decoder = shape_.decoder_layers > 0;
    const double source = real(shape_.tokens), target = real(shape_.target_tokens);
    const double encoder = encoder_layer(source);
    double bytes = layers(shape_.layers, encoder, source) + source * real(shape_.hidden);
    double one = shape_.layers > 0 ? encoder : 0;
    if (has_decoder) {
      bytes +=
          layers(shape_.decoder_layers, decoder_layer(), target) + target * real(shape_.hidden);
      one = std::max(one, decoder_layer());
    }
    if (recompute_ == Recompute::kFull) bytes += one;
    // DeBERTa's two tables of scores against positions, alive while one layer runs.
    bytes += 4 * real(shape_.heads) * source * real(shape_.relative_positions);
    const double last = has_decoder ? target : source;
    bytes += 4 * last * real(shape_.hidden); // the last norm, the projection's input
    const double logits = keeping_ == Keeping::kPaper ? 4 : 12;
    return bytes + logits * last * real(shape_.vocabulary);
  }

 private:
  const Transformer& shape_;
  Keeping keeping_;
  Recompute recompute_;
};

bool read_numbers(const std::string& text, std::initializer_list<uint64_t*> places) {
  const char* at = text.c_str();
  size_t read = 0;
  for (uint64_t* place : places) {
    if (*at < '0' || *at > '9') return false;
    char* end = nullptr;
    *place = std::strtoull(at, &end, 10);
    // Products of four such numbers stay far below the largest double; larger ones are typing
    // errors.
    if (*place > uint64_t{1} << 40) return false;
    at = end;
    if (++read < places.size() && *at++ != ',') return false;
  }
  return *at == '\0';
}

} // namespace

bool read_transformer(const std::string& text, Transformer* transformer) {
  return read_numbers(text, {&transformer->hidden, &transformer->layers, &transformer->heads,
                             &transformer->tokens, &transformer->vocabulary}) &&
         transformer->hidden > 0 && transformer->tokens > 0;
}

bool read_decoder(const std::string& text, Transformer* transformer) {
  return read_numbers(text, {&transformer->decoder_layers, &transformer->target_tokens}) &&
         transformer->decoder_layers > 0 && transformer->target_tokens > 0;
}

uint64_t activation_bytes(const Transformer& transformer, Keeping keeping, Recompute recompute) {
  const double bytes = Counter(transformer, keeping, recompute).total();
  return bytes < 0x1p63 ? static_cast<uint64_t>(bytes) : uint64_t{1} << 63;
}

} // namespace zero::cli
