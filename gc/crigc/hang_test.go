package crigc

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imagesOn says that images are on a file system.
type imagesOn struct {
	ImageService
	path string
}

func (i imagesOn) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: i.path}}}}, nil
}

// A file system that does not answer costs a deadline, and one goroutine for good.
func TestDeadFileSystemHoldsOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Images{images: imagesOn{path: "/dead"}}
		alive := make(chan struct{})
		var calls atomic.Int32
		s.statfs = func(string) (int64, int64, error) {
			calls.Add(1)
			<-alive
			return 2, 1, nil
		}
		for range 1000 {
			if _, err := s.Disk(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
		}
		if n := s.disks.InFlight(); n != 1 || calls.Load() != 1 {
			t.Errorf("%d goroutines after %d calls", n, calls.Load())
		}
		close(alive)
		synctest.Wait()
		if d, err := s.Disk(t.Context()); err != nil || d.Capacity != 2 || d.Available != 1 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
