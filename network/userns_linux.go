package network

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/nspin"
)

// spaceOf creates a network namespace that belongs to a user namespace.
func spaceOf(ctx context.Context, owner *os.File) (*os.File, error) {
	c, err := nspin.StartChild(ctx, owner, unix.CLONE_NEWNET)
	if err != nil {
		return nil, fmt.Errorf("make network namespace of user namespace: %w", err)
	}
	defer c.End()
	return c.Open("net")
}
