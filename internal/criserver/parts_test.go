package criserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestInParts(t *testing.T) {
	item := func(n int) *runtimeapi.Container { return &runtimeapi.Container{Id: strings.Repeat("x", n)} }
	for _, tt := range []struct {
		sizes []int
		want  string
	}{
		{nil, "[]"},
		{[]int{1, 1, 1}, "[3]"},
		{[]int{2 * partSize}, "[1]"},
		{[]int{1, 2 * partSize, 1}, "[1 1 1]"},
		{[]int{partSize / 2, partSize / 4, partSize / 2, 1}, "[2 2]"},
	} {
		var items []*runtimeapi.Container
		for _, n := range tt.sizes {
			items = append(items, item(n))
		}
		var got []int
		if err := inParts(items, nil, func(p []*runtimeapi.Container) error { got = append(got, len(p)); return nil }); err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%v: %v, %v; want %s", tt.sizes, got, err, tt.want)
		}
	}
	bad := errors.New("bad")
	if err := inParts([]*runtimeapi.Container{item(1)}, bad, nil); !errors.Is(err, bad) {
		t.Error(err)
	}
}
