package plugins_test

import (
	"fmt"
	"time"

	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// A token of an hour is renewed in its last twelve minutes.
func ExampleTokenRequiresRefresh() {
	issued := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	hour := int64(3600)
	t := plugins.IssuedToken{Value: "x", Expires: issued.Add(time.Hour), Seconds: &hour}
	for _, age := range []time.Duration{30 * time.Minute, 50 * time.Minute} {
		fmt.Println(age, plugins.TokenRequiresRefresh(t, issued.Add(age), 0))
	}
	// Output:
	// 30m0s false
	// 50m0s true
}
