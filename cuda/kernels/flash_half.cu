#include "om.h"
#include "wide.h"
#include "attention.h"
#include "pieces.h"
#include "flash_half.h"

FLASH(bf16, true, 64, 64)
FLASH(bf16, true, 128, 64)
FLASH(f16, false, 64, 64)
FLASH(f16, false, 128, 64)
