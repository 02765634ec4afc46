package fit

import (
	"maps"
	"testing"
)

func TestNodeLabels(t *testing.T) {
	live := map[string]string{"a": "live", "b": "live"}
	for _, c := range []struct {
		node Node
		want map[string]string
	}{
		{Node{}, nil},
		{Node{Labels: map[string]string{"a": "own"}}, map[string]string{"a": "own"}},
		{Node{LiveLabels: func() map[string]string { return live }}, live},
		{Node{Labels: map[string]string{"a": "own", "c": "own"}, LiveLabels: func() map[string]string { return live }},
			map[string]string{"a": "live", "b": "live", "c": "own"}},
	} {
		if got := c.node.NodeLabels(); !maps.Equal(got, c.want) {
			t.Errorf("NodeLabels = %v, want %v", got, c.want)
		}
	}
}
