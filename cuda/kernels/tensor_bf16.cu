#include "om.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "product.h"

// Products of bfloat16.
PRODUCTS(om_tensor_bf16, of_bf16)
SUM(bf16, om_bf16)
