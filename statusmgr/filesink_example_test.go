package statusmgr_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/statusmgr"
)

func ExampleFileSink() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sink, err := statusmgr.NewFileSink(statusmgr.FileSinkConfig{Dir: dir})
	if err != nil {
		panic(err)
	}
	web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	if err := sink.Update(context.Background(), web, v1.PodStatus{Phase: v1.PodRunning}); err != nil {
		panic(err)
	}
	files, err := os.ReadDir(dir)
	fmt.Println(files[0].Name(), err)
	statuses, err := sink.Load(context.Background())
	fmt.Println(statuses["1"].Phase, err)
	// Output:
	// default_web_1.json <nil>
	// Running <nil>
}
