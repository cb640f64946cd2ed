/* Requests about names: making, removing, renaming, listing. */
#include "config.h"

#include "fs/fuse_ops.h"

#include <stdlib.h>
#include <string.h>

void fs_fuse_mknod(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t rdev)
{
	struct fs_fuse_caller caller;
	struct fs_attr a;

	fs_reply_entry(req,
		       fs_mknod(fs_of(req), dir, kv_slice_str(name), mode, rdev,
				fs_caller_of(req, &caller), &a),
		       &a);
}

void fs_fuse_mkdir(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode)
{
	struct fs_fuse_caller caller;
	struct fs_attr a;

	fs_reply_entry(req,
		       fs_mkdir(fs_of(req), dir, kv_slice_str(name), mode,
				fs_caller_of(req, &caller), &a),
		       &a);
}

void fs_fuse_symlink(fuse_req_t req, const char *target, fuse_ino_t dir, const char *name)
{
	struct fs_fuse_caller caller;
	struct fs_attr a;

	fs_reply_entry(req,
		       fs_symlink(fs_of(req), dir, kv_slice_str(name), kv_slice_str(target),
				  fs_caller_of(req, &caller), &a),
		       &a);
}

void fs_fuse_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t dir, const char *name)
{
	struct fs_attr a;

	fs_reply_entry(req, fs_link(fs_of(req), ino, dir, kv_slice_str(name), &a), &a);
}

void fs_fuse_unlink(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	fs_reply_err(req, fs_unlink(fs_of(req), dir, kv_slice_str(name)));
}

void fs_fuse_rmdir(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	fs_reply_err(req, fs_rmdir(fs_of(req), dir, kv_slice_str(name)));
}

void fs_fuse_rename(fuse_req_t req, fuse_ino_t from_dir, const char *from, fuse_ino_t to_dir,
		    const char *to, unsigned int flags)
{
	fs_reply_err(req, fs_rename(fs_of(req), from_dir, kv_slice_str(from), to_dir,
				    kv_slice_str(to), flags));
}

/* An inode made and opened at once. */
static void reply_create(fuse_req_t req, int err, const struct fs_attr *a,
			 struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param e;

	if (err) {
		fs_reply_err(req, err);
		return;
	}
	fs_entry_of(a, &e);
	fi->keep_cache = 1;
	if (fuse_reply_create(req, &e, fi))
		fs_forget(fs, a->ino, 1);
}

void fs_fuse_create(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
		    struct fuse_file_info *fi)
{
	struct fs_fuse_caller caller;
	struct fs_attr a;

	reply_create(req,
		     fs_mknod(fs_of(req), dir, kv_slice_str(name), S_IFREG | (mode & 07777), 0,
			      fs_caller_of(req, &caller), &a),
		     &a, fi);
}

void fs_fuse_tmpfile(fuse_req_t req, fuse_ino_t dir, mode_t mode, struct fuse_file_info *fi)
{
	struct fs_fuse_caller caller;
	struct fs_attr a;

	reply_create(req,
		     fs_tmpfile(fs_of(req), dir, S_IFREG | (mode & 07777),
				fs_caller_of(req, &caller), &a),
		     &a, fi);
}

void fs_fuse_opendir(fuse_req_t req, fuse_ino_t dir, struct fuse_file_info *fi)
{
	(void)dir;
	if (fs_front(req)->no_opendir) {
		fs_reply_err(req, -ENOSYS);
		return;
	}
	fi->keep_cache = 1;
	fi->cache_readdir = 1;
	(void)fuse_reply_open(req, fi);
}

struct listing {
	fuse_req_t req;
	bool with_attr;
	char *buffer;
	size_t bytes, bytes_max;
	/* Inodes that the reply makes known, to be forgotten if it isn't taken. */
	fs_ino *known;
	size_t known_count;
};

static bool list_entry(void *arg, const struct fs_dirent *d)
{
	struct listing *l = arg;
	/* As long as name_bytes is a byte, a copy with a 0 behind it is cheap. */
	char name[FS_NAME_BYTES_MAX + 1];
	size_t room = l->bytes_max - l->bytes, bytes;
	struct fuse_entry_param e = { 0 };

	memcpy(name, d->name.data, d->name.bytes);
	name[d->name.bytes] = 0;
	if (d->attr)
		fs_entry_of(d->attr, &e);
	else
		e.attr = (struct stat){ .st_ino = d->ino, .st_mode = (mode_t)d->type << 12 };
	if (l->with_attr)
		bytes = fuse_add_direntry_plus(l->req, l->buffer + l->bytes, room, name, &e,
					       (off_t)d->cookie);
	else
		bytes = fuse_add_direntry(l->req, l->buffer + l->bytes, room, name, &e.attr,
					  (off_t)d->cookie);
	if (bytes > room)
		return false;
	l->bytes += bytes;
	if (d->attr)
		l->known[l->known_count++] = d->ino;
	return true;
}

/* An entry with attributes takes at least this much of a reply. */
#define PLUS_BYTES_MIN 128

static void list(fuse_req_t req, fuse_ino_t dir, size_t bytes, off_t cookie, bool with_attr)
{
	struct fs *fs = fs_of(req);
	size_t known_bytes = with_attr ? (bytes / PLUS_BYTES_MIN + 1) * sizeof(fs_ino) : 0;
	struct listing l = { .req = req, .with_attr = with_attr, .bytes_max = bytes };
	uint8_t *memory = fs_thread_buffer(known_bytes + bytes);
	int err;

	if (!memory) {
		fs_reply_err(req, -ENOMEM);
		return;
	}
	l.known = (fs_ino *)(void *)memory;
	l.buffer = (char *)memory + known_bytes;
	err = fs_readdir(fs, dir, (uint64_t)cookie, with_attr, list_entry, &l);
	/* The kernel has no way to hear of an error behind entries: it comes with the next request. */
	if (err && !l.bytes) {
		fs_reply_err(req, err);
		return;
	}
	if (fuse_reply_buf(req, l.buffer, l.bytes))
		for (size_t i = 0; i < l.known_count; i++)
			fs_forget(fs, l.known[i], 1);
}

void fs_fuse_readdir(fuse_req_t req, fuse_ino_t dir, size_t bytes, off_t cookie,
		     struct fuse_file_info *fi)
{
	(void)fi;
	list(req, dir, bytes, cookie, false);
}

void fs_fuse_readdirplus(fuse_req_t req, fuse_ino_t dir, size_t bytes, off_t cookie,
			 struct fuse_file_info *fi)
{
	(void)fi;
	list(req, dir, bytes, cookie, true);
}
