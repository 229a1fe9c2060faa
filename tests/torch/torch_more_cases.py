"""More cases of tests/torch/torch_engine.py."""
# SPDX-License-Identifier: BSD-3-Clause
