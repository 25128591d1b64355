#include "om.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "product.h"

// Products of floats that are rounded to TF32.
PRODUCTS(om_tensor_tf32, to_tf32)
