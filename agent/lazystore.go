package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/checkpoint"
)

// lazyStore is a checkpoint store whose directory is made when the first value
// is written: before Run nothing may be made, and most nodes keep nothing.
type lazyStore struct {
	dir    string
	log    *zap.Logger
	noSync bool // values die with the machine

	mu    sync.Mutex
	store *checkpoint.Store
}

// open returns the store; nil, if it has no directory and create does not ask
// for one.
func (l *lazyStore) open(create bool) (*checkpoint.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store != nil {
		return l.store, nil
	}
	if !create {
		if _, err := os.Stat(l.dir); os.IsNotExist(err) {
			return nil, nil
		}
	}
	var err error
	l.store, err = checkpoint.Open(checkpoint.Config{Dir: l.dir, NoSync: l.noSync, OnCorrupt: func(key, aside string, err error) {
		l.log.Error("a damaged checkpoint was set aside", zap.String("of", filepath.Base(l.dir)), zap.String("key", key), zap.String("file", aside), zap.Error(err))
	}})
	return l.store, err
}

func (l *lazyStore) Read(key string) ([]byte, error) {
	s, err := l.open(false)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fs.ErrNotExist
	}
	return s.Read(key)
}

func (l *lazyStore) Write(key string, value []byte) error {
	s, err := l.open(true)
	if err != nil {
		return err
	}
	return s.Write(key, value)
}

func (l *lazyStore) Delete(key string) error {
	s, err := l.open(false)
	if s == nil {
		return err
	}
	return s.Delete(key)
}

func (l *lazyStore) Keys() ([]string, error) {
	s, err := l.open(false)
	if s == nil {
		return nil, err
	}
	return s.Keys()
}
