package resources

import (
	"context"
	"errors"

	"github.com/nodewright/nodewright/internal/kernel"
)

// maxNames limits the swap devices that an error names.
const maxNames = 8

// readSwap returns the names of the swap of a machine with their kinds, such as "/dev/sda2
// (partition)", and its size in bytes.
func readSwap(machine *kernel.Reader) (names []string, size int64, err error) {
	ctx := context.Background()
	swaps, err := machine.Swaps(ctx)
	if err != nil || len(swaps) == 0 {
		return nil, 0, err
	}
	for _, s := range swaps {
		if len(names) == maxNames {
			names = append(names, "and more")
			break
		}
		name := s.Name
		if s.Kind != "" {
			name += " (" + s.Kind + ")"
		}
		names = append(names, name)
	}
	info, err := machine.MemInfo(ctx)
	if err != nil {
		return names, 0, err
	}
	total, known := info.SwapTotal.Number()
	if !known {
		return names, 0, errors.New("/proc/meminfo has no line SwapTotal")
	}
	return names, int64(total), nil
}
