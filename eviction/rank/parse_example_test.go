package rank_test

import (
	"fmt"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Thresholds as the kubelet's configuration file has them.
func ExampleParse() {
	list, err := rank.Parse(rank.Text{
		Hard:      map[string]string{"memory.available": "100Mi"},
		Soft:      map[string]string{"nodefs.available": "15%"},
		SoftGrace: map[string]string{"nodefs.available": "1m30s"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range list {
		fmt.Println(t.Signal, t.Hard(), t.Grace)
	}
	_, err = rank.Parse(rank.Text{Hard: map[string]string{"memory.available": "101%"}})
	fmt.Println(err != nil)
	// Output:
	// memory.available true 0s
	// nodefs.available false 1m30s
	// true
}
