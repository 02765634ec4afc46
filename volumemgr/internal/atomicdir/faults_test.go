package atomicdir

import (
	"errors"
	"io/fs"
	"testing"
)

var errInjected = errors.New("injected")

// faulty fails at one step, or at it and every later one, as a crash does.
type faulty struct {
	files
	step     *int
	failAt   int
	crash    bool
	happened bool // the step that fails takes effect nevertheless
}

// do runs a step, or fails it.
func (f faulty) do(step func() error) error {
	*f.step++
	switch {
	case *f.step == f.failAt && f.happened:
		return errors.Join(step(), errInjected)
	case *f.step == f.failAt, f.crash && *f.step > f.failAt:
		return errInjected
	}
	return step()
}

func value[T any](f faulty, step func() (T, error)) (out T, err error) {
	err = f.do(func() error { out, err = step(); return err })
	return out, err
}

func (f faulty) readlink(n string) (string, error) {
	return value(f, func() (string, error) { return f.files.readlink(n) })
}

func (f faulty) readFile(n string, limit int64) ([]byte, error) {
	return value(f, func() ([]byte, error) { return f.files.readFile(n, limit) })
}

func (f faulty) lstat(n string) (fs.FileInfo, error) {
	return value(f, func() (fs.FileInfo, error) { return f.files.lstat(n) })
}

func (f faulty) list(n string, each func(fs.DirEntry) bool) error {
	return f.do(func() error { return f.files.list(n, each) })
}

func (f faulty) mkdir(n string) error { return f.do(func() error { return f.files.mkdir(n) }) }
func (f faulty) create(n string, data []byte, sync bool) error {
	return f.do(func() error { return f.files.create(n, data, sync) })
}
func (f faulty) chmod(n string, m fs.FileMode) error {
	return f.do(func() error { return f.files.chmod(n, m) })
}
func (f faulty) lchown(n string, u, g int) error {
	return f.do(func() error { return f.files.lchown(n, u, g) })
}
func (f faulty) symlink(to, n string) error {
	return f.do(func() error { return f.files.symlink(to, n) })
}
func (f faulty) rename(a, b string) error { return f.do(func() error { return f.files.rename(a, b) }) }
func (f faulty) remove(n string) error    { return f.do(func() error { return f.files.remove(n) }) }
func (f faulty) removeAll(n string) error { return f.do(func() error { return f.files.removeAll(n) }) }
func (f faulty) syncDir(n string) error   { return f.do(func() error { return f.files.syncDir(n) }) }

// If any step fails, or the process dies there, readers see the old set or the new one, and the
// next Write has the same result as a first one.
func TestEveryStepMayFail(t *testing.T) {
	old := payload("a=old", "d/b=old", "gone=old", "gone2/x=old")
	next := payload("a=new", "d/b=new", "d/e/f=new", "more=new")
	for _, way := range []struct {
		name            string
		crash, happened bool
	}{{"fails", false, false}, {"dies before", true, false}, {"dies after", true, true}, {"fails but happened", false, true}} {
		for _, first := range []bool{true, false} {
			for failAt, last := 1, false; !last; failAt++ {
				dir := memoryDir(t)
				if !first {
					write(t, newWriter(t, Config{Dir: dir}), old)
				}
				step := 0
				w := newWriter(t, Config{Dir: dir, Sync: first && !way.happened, open: func(dir string) (files, error) {
					f, err := openRoot(dir)
					return faulty{f, &step, failAt, way.crash, way.happened}, err
				}})
				changed, err := w.Write(next)
				last = step < failAt
				if last {
					if err != nil || step < 25 {
						t.Fatalf("%d steps, error %v", step, err)
					}
					break
				}
				whole := func(p Payload) bool {
					root, err := openRoot(dir)
					if err != nil {
						t.Fatal(err)
					}
					defer root.close()
					to, err := published(root)
					if err != nil {
						t.Fatal(err)
					}
					return newWriter(t, Config{Dir: dir}).same(root, to, p)
				}
				isNew, isOld := whole(next), !first && whole(old)
				if first && !isNew {
					if _, err := openPublished(t, dir); err == nil {
						t.Errorf("%s at step %d of the first Write: part of a set is published", way.name, failAt)
					}
				} else if !isNew && !isOld {
					t.Errorf("%s at step %d: neither the old set nor the new one", way.name, failAt)
				}
				if changed && !isNew {
					t.Errorf("%s at step %d: says it changed, and did not", way.name, failAt)
				}
				write(t, newWriter(t, Config{Dir: dir}), next)
				tidy(t, dir, next)
			}
		}
	}
}

func openPublished(t *testing.T, dir string) (string, error) {
	t.Helper()
	root, err := openRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.close()
	return root.readlink(dataLink)
}
