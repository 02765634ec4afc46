package checkpoint

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/durable"
)

// slowSyncs is a disk whose directories take a second to sync.
type slowSyncs struct {
	durable.OS

	mu      sync.Mutex
	renamed map[string]bool
	safe    map[string]bool // outlast a failure of the power
	syncs   int
	err     error
}

func (d *slowSyncs) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renamed[to] = true
	return d.OS.Rename(from, to)
}

func (d *slowSyncs) SyncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	var covered []string
	for path := range d.renamed {
		covered = append(covered, path)
	}
	d.mu.Unlock()
	time.Sleep(time.Second)
	d.mu.Lock()
	for _, path := range covered {
		d.safe[path] = d.err == nil
	}
	return d.err
}

// Values that are written at the same time share syncs of their directory, and none is
// said to be safe before a sync that began after its rename.
func TestWritesShareSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowSyncs{OS: durable.OS{DirMode: 0o700, FileMode: 0o600}, renamed: map[string]bool{}, safe: map[string]bool{}}
		dir := t.TempDir()
		s, err := Open(Config{Dir: dir, files: disk})
		if err != nil {
			t.Fatal(err)
		}
		write := func(keys ...string) (errs []error) {
			errs = make([]error, len(keys))
			var wg sync.WaitGroup
			for i, key := range keys {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 300 * time.Millisecond)
					errs[i] = s.Write(key, []byte("v"))
					disk.mu.Lock()
					defer disk.mu.Unlock()
					if safe := disk.safe[dir+"/"+key]; safe != (errs[i] == nil) {
						t.Errorf("%s: written with %v, and safe: %v", key, errs[i], safe)
					}
				})
			}
			wg.Wait()
			return errs
		}
		var keys []string
		for i := range 20 {
			keys = append(keys, fmt.Sprintf("k%02d", i))
		}
		if err := errors.Join(write(keys...)...); err != nil {
			t.Fatal(err)
		}
		// The last write begins after 5.7 s: a sync each second, and one more.
		if disk.syncs > 8 {
			t.Errorf("%d syncs for 20 writes", disk.syncs)
		}
		disk.err = errors.New("disk failed")
		for i, err := range write("a", "b", "c") {
			if !errors.Is(err, disk.err) {
				t.Errorf("write %d: %v, want the error of its sync", i, err)
			}
		}
		disk.err = nil
		if err := errors.Join(write("a", "b", "c")...); err != nil {
			t.Errorf("after an error: %v", err)
		}
	})
}
