"""torchvision's ops of detection. Made with torch 2.11 and torchvision 0.26."""

import torch
import torchvision  # noqa: F401

from recorder import CASES, case, ints, rand, save

ops = torch.ops.torchvision


def regions(n, images, size, dtype):
    """Regions inside, across and outside an image, and some turned around."""
    corners = rand(n, 4, dtype=torch.float64, scale=size * 0.6, shift=size / 2)
    corners[: n // 2] = torch.cat([corners[:, :2].minimum(corners[:, 2:]), corners[:, :2].maximum(corners[:, 2:])], 1)[: n // 2]
    return torch.cat([ints(0, images, n, 1).to(torch.float64), corners], 1).to(dtype)


def only_result():
    CASES[-1]["outputs"] = CASES[-1]["outputs"][:1]


for dtype in (torch.float32, torch.float64):
    x = rand(2, 2, 9, 7, dtype=dtype)
    for boxes in (regions(6, 2, 16, dtype), regions(2, 2, 300, dtype), torch.zeros(0, 5, dtype=dtype)):
        for sampling in (-1, 0, 1, 3) if dtype == torch.float32 else (0, 2):
            for aligned in (False, True):
                # torchvision fails where turned regions have as many samples as pixels
                upright = boxes[: len(boxes) // 2] if aligned and sampling < 1 else boxes
                case(ops.roi_align.default, x, upright, 0.5, 2, 3, sampling, aligned)
        case(ops.roi_align.default, x.mT, boxes[: len(boxes) // 2], 0.25, 3, 1, 0, True)
        case(ops.roi_pool.default, x, boxes, 0.5, 3, 2)
        only_result()
        case(ops.roi_pool.default, x.mT, boxes, 1.0, 2, 2)
        only_result()
    many = rand(2, 12, 6, 8, dtype=dtype)[:, :, :, ::2]
    for boxes in (regions(6, 2, 16, dtype), regions(2, 2, 300, dtype)):
        for sampling in (-1, 1, 2):
            case(ops.ps_roi_align.default, many, boxes, 0.5, 2, 3, sampling)
            only_result()
        for scale in (0.25, 0.5, 1.0):
            case(ops.ps_roi_pool.default, many, boxes, scale, 3, 2)
            only_result()
    case(ops.roi_align.default, rand(1, 1, 4, 4, dtype=dtype), torch.tensor([[0, -2e3, -1e3, 1e3, 2e3], [0, 1, 1, 1, 1]], dtype=dtype),
         1.0, 2, 2, 0, True)

    for groups, moving, mask, size, window in (
        (1, 1, True, (3, 2), (1, 1, 0, 0, 1, 1)), (2, 1, False, (2, 2), (2, 1, 1, 0, 1, 2)), (1, 2, True, (1, 3), (1, 2, 0, 1, 2, 1)),
        (2, 4, True, (3, 3), (2, 3, 1, 1, 1, 1)),
    ):
        x = rand(2, 4, 6, 7, dtype=dtype)
        high = (6 + 2 * window[2] - window[4] * (size[0] - 1) - 1) // window[0] + 1
        wide = (7 + 2 * window[3] - window[5] * (size[1] - 1) - 1) // window[1] + 1
        taps = moving * size[0] * size[1]
        case(ops.deform_conv2d.default, x, rand(8, 4 // groups, *size, dtype=dtype), rand(2, 2 * taps, high, wide, dtype=dtype, scale=2),
             rand(2, taps, high, wide, dtype=dtype) if mask else torch.zeros(2, 1, dtype=dtype), rand(8, dtype=dtype), *window, groups,
             moving, mask)
    case(ops.deform_conv2d.default, x.mT, rand(2, 4, 1, 1, dtype=dtype), rand(2, 6, 7, 2, dtype=dtype).permute(0, 3, 2, 1) * 2,
         torch.zeros(2, 1, dtype=dtype), rand(2, dtype=dtype), 1, 1, 0, 0, 1, 1, 1, 1, False)
save("region")
