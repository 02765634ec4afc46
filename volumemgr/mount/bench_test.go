package mount

import (
	"fmt"
	"strings"
	"testing"
)

func BenchmarkParseTable(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "%d 30 0:%d / /var/lib/agent/pods/2f8d9a34-0000-0000-0000-%012d/volumes/kubernetes.io~secret/token rw,relatime shared:%d - tmpfs tmpfs rw,size=65536k\n", i, i, i, i)
	}
	data := []byte(text.String())
	b.Run("all of 1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if table, err := ParseTable(data); err != nil || len(table) != 1000 {
				b.Fatal(err)
			}
		}
	})
	b.Run("one of 1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if table, err := parseUnder(data, "/var/lib/agent/pods/2f8d9a34-0000-0000-0000-000000000007/volumes/kubernetes.io~secret/token"); err != nil || len(table) != 1 {
				b.Fatal(err)
			}
		}
	})
}
