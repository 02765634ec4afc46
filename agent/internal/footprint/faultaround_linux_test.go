package footprint

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/programpages"
)

// One byte of each 64 KiB of the program is read. What is resident then is a page of each, and
// without bringSinglePages most of the program.
func TestBringSinglePages(t *testing.T) {
	fd, err := trackWrites()
	if err != nil {
		t.Skipf("no asynchronous tracking of writes, as before Linux 6.7 or below a seccomp filter: %v", err)
	}
	_ = unix.Close(fd)
	program := programpages.Find()
	var size int64
	for _, s := range program {
		size += int64(s.End - s.Start)
	}
	around := readSparsely(t, program)
	end := bringSinglePages(program)
	single := readSparsely(t, program)
	end()
	again := readSparsely(t, program)
	t.Logf("of %d KiB: %d with fault-around, %d without, %d after the end", size>>10, around>>10, single>>10, again>>10)
	// The test itself reads some of the program meanwhile.
	if single > around/2 || again < around/2 {
		t.Errorf("of %d bytes %d with fault-around, %d without, %d after the end; want less than half of both without",
			size, around, single, again)
	}
}

// readSparsely is how much of files is resident once a byte of each 64 KiB of the program was read.
func readSparsely(t *testing.T, program []programpages.Span) int64 {
	t.Helper()
	programpages.Drop(program)
	before := resident().files
	for _, s := range program {
		for at := s.Start; at < s.End; at += 64 << 10 {
			local := []unix.Iovec{{Base: new(byte), Len: 1}}
			if _, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: at, Len: 1}}, 0); err != nil {
				t.Fatalf("process_vm_readv of %#x: %v", at, err)
			}
		}
	}
	return resident().files - before
}
