#include "om.h"
#include "tile.h"
#include "tensor.h"
#include "product.h"
#include "hopper.h"
#include "hopper_product.h"

// Products of bfloat16 by wgmma.
HOPPER_PRODUCTS(om_hopper_bf16, of_bf16)
