package network_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/nodewright/nodewright/network"
)

func TestTheCodeOfAnError(t *testing.T) {
	full := network.Errorf(network.ResourceExhausted, "no free address in %s: %w", "10.0.0.0/24", io.EOF)
	for _, c := range []struct {
		err  error
		want network.Code
		name string
	}{
		{nil, network.OK, "OK"},
		{errors.New("boom"), network.Unknown, "Unknown"},
		{full, network.ResourceExhausted, "ResourceExhausted"},
		{fmt.Errorf("attach a: %w", full), network.ResourceExhausted, "ResourceExhausted"},
		{errors.Join(io.EOF, full), network.ResourceExhausted, "ResourceExhausted"},
		{fmt.Errorf("add: %w", context.DeadlineExceeded), network.DeadlineExceeded, "DeadlineExceeded"},
		{context.Canceled, network.Canceled, "Canceled"},
		{network.Errorf(network.Unavailable, "%w", context.Canceled), network.Unavailable, "Unavailable"},
		{network.Errorf(77, "odd"), 77, "Code(77)"},
	} {
		if got := network.CodeOf(c.err); got != c.want || got.String() != c.name {
			t.Errorf("%v: %v, want %v", c.err, got, c.name)
		}
	}
	if full.Error() != "no free address in 10.0.0.0/24: EOF" || !errors.Is(full, io.EOF) {
		t.Errorf("%v", full)
	}
}
