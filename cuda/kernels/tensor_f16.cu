#include "om.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "product.h"

// Products of half floats, as product.h has them.
PRODUCTS(om_tensor_f16, of_f16)
SUM(f16, om_f16)
