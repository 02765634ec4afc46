package testprogram

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

var ports atomic.Int32 // number of ports that Port has tried

// Port returns a free TCP port for a program that a test starts. The port is below the range from
// which the kernel chooses, so that another test that listens on port 0 does not get it.
func Port(t testing.TB) int {
	t.Helper()
	const first, number = 20000, 10000
	for range number {
		port := first + (os.Getpid()*31+int(ports.Add(1)))%number
		if l, err := net.Listen("tcp", fmt.Sprint(":", port)); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return port
		}
	}
	t.Fatalf("all TCP ports from %d to %d are in use", first, first+number-1)
	return 0
}
