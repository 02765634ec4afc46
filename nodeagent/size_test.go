package nodeagent

import (
	"os"
	"strconv"
	"testing"
	"testing/fstest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nodewright/nodewright/internal/kernel"
)

func TestWarnOfSize(t *testing.T) {
	files := func(watches, open string) fstest.MapFS {
		return fstest.MapFS{
			"proc/sys/fs/inotify/max_user_watches":          {Data: []byte(watches + "\n")},
			"proc/" + strconv.Itoa(os.Getpid()) + "/limits": {Data: []byte("Max open files            " + open + "   1048576   files\n")},
		}
	}
	for name, c := range map[string]struct {
		maxPods int64
		files   fstest.MapFS
		want    []string
	}{
		"the default":         {110, files("8192", "1024"), nil},
		"nothing can be read": {1000, fstest.MapFS{}, nil},
		"as many as measured": {1000, files("8192", "1048576"), nil},
		"more than measured":  {1001, files("8192", "unlimited"), []string{"maxPods is higher than the number of pods that was measured on one node "}},
		"few watches":         {500, files("499", "1048576"), []string{"a limit of the machine is too low for maxPods fs.inotify.max_user_watches"}},
		"few open files":      {900, files("8192", "1024"), []string{"a limit of the machine is too low for maxPods open files"}},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			warnOfSize(t.Context(), c.maxPods, kernel.At(c.files), zap.New(core))
			var got []string
			for _, e := range logs.All() {
				limit, _ := e.ContextMap()["limit"].(string)
				got = append(got, e.Message+" "+limit)
			}
			if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}
