package lifecycle_test

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/lifecycle"
)

// cache has a token for each of several pods.
type cache map[types.UID]string

func (c cache) Retain(known func(types.UID) bool) {
	maps.DeleteFunc(c, func(uid types.UID, _ string) bool { return !known(uid) })
}

// The tokens of a pod that nobody knows any more go with the next sweep.
func Example_tokens() {
	c := cache{"web-1": "eyJhbGciOi", "gone-7": "eyJhbGciOj"}
	p, err := lifecycle.NewTokens(lifecycle.TokensConfig{Tokens: c})
	if err != nil {
		fmt.Println(err)
		return
	}
	known := func(uid types.UID) bool { return uid == "web-1" }
	if err := p.Sweep(context.Background(), known); err != nil {
		fmt.Println(err)
	}
	fmt.Println(slices.Collect(maps.Keys(c)))
	// Output: [web-1]
}
