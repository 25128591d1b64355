#include "om.h"
#include "wide.h"
#include "attention.h"
#include "pieces.h"
#include "flash_half.h"

// Heads of more than 128 columns: with half as many keys at a time what a thread has fits in its registers.
FLASH(bf16, true, 256, 32)
FLASH(f16, false, 256, 32)
