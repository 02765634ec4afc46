//go:build !linux

package cni

import (
	"context"
	"errors"
	"sync"
)

type groups struct{}

func (groups) run(context.Context, command, *sync.WaitGroup) (output, error) {
	return output{}, errors.New("CNI plugins are supported on Linux only")
}
