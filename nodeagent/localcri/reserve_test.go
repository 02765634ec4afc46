package localcri

import (
	"testing"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Images leave as much free as evictions want: of several thresholds the highest, and
// those without a grace period alone.
func TestReserveIsTheThresholds(t *testing.T) {
	for _, c := range []struct {
		hard, soft, grace map[string]string
		bytes, inodes     int64
	}{
		{hard: map[string]string{"memory.available": "100Mi"}},
		{hard: map[string]string{"nodefs.available": "10%", "imagefs.available": "15%", "nodefs.inodesFree": "5%"}, bytes: 150, inodes: 500},
		{hard: map[string]string{"nodefs.available": "200", "imagefs.inodesFree": "7"}, bytes: 200, inodes: 7},
		{
			hard: map[string]string{"nodefs.available": "10%"}, soft: map[string]string{"nodefs.available": "50%"},
			grace: map[string]string{"nodefs.available": "1m"}, bytes: 100,
		},
	} {
		list, err := rank.Parse(rank.Text{Hard: c.hard, Soft: c.soft, SoftGrace: c.grace})
		if err != nil {
			t.Fatal(err)
		}
		if bytes, inodes := reserve(list)(1000, 10_000); bytes != c.bytes || inodes != c.inodes {
			t.Errorf("%v: %d bytes, %d inodes; want %d, %d", c.hard, bytes, inodes, c.bytes, c.inodes)
		}
	}
}
