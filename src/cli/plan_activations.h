// What a transformer keeps of one sample from the forward pass for the backward pass.
//
// The base is Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
// Models" (arXiv 2205.05198), equation 2 without tensor parallelism: a layer keeps s h (34 + 5 a s
// / h) bytes in 16 bits.  The extensions are this program's own; docs/memory.md states them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace zero::cli {

enum class Recompute {
  kNone,
  kSelective, // the attention's scores: section 5 of the paper
  kFull // a whole layer from its input
};

// How the framework keeps it.
enum class Keeping {
  kPaper, // the formula: everything in 16 bits, no copies
  kEager, // a 16-bit model run op by op: logits with their shifted and fp32 copies, repeats kept
  kAutocast // fp32 norms and softmax, each linear layer casts its own input
};

struct Transformer {
  uint64_t hidden = 0;
  uint64_t layers = 0; // of the encoder, where there is a decoder
  uint64_t heads = 0;
  uint64_t tokens = 0; // of the source
  uint64_t vocabulary = 0; // 0: no language head
  uint64_t decoder_layers = 0;
  uint64_t target_tokens = 0;
  uint64_t relative_positions = 0; // DeBERTa's disentangled attention; 0: none
};

// "hidden,layers,heads,seq,vocab"; false where it is not that.
bool read_transformer(const std::string& text, Transformer* transformer);
// "layers,seq"
bool read_decoder(const std::string& text, Transformer* transformer);

// Saturates at 2^63: such a sample fits nowhere.
uint64_t activation_bytes(const Transformer& transformer, Keeping keeping, Recompute recompute);

} // namespace zero::cli
