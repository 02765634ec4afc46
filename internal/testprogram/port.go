package testprogram

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

var ports atomic.Int32 // that Port has tried

// Port returns a TCP port for a program that a test starts. No process listens on it. It is below
// the range from which the kernel chooses, so that no other test gets it by listening on port 0.
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
