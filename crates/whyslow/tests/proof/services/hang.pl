# A client that has sent one request and waits for longer than any window, and a service that cannot answer. Between them relays: event
# loops that wake up by timeout, send a request to the next one, and keep a connection to a bystander, which has answered. Prints the
# client's pid once all wait; it ends when its input ends. Arguments: names of the three, what keeps the service from answering, how the
# client waits, a folder with a file to lock, "unix" or "tcp", and for each relay "name/wire/way/tick".
use strict; use warnings;
use Fcntl ':flock'; use IO::Select; use IO::Socket::INET; use IO::Socket::UNIX; use POSIX ':sys_wait_h';
$| = 1;
my ($client, $service, $holder, $act, $way, $dir, $wire, @relays) = @ARGV;
my (@children, $sockets, $listener, $at);
my $file = "$dir/lock";
pipe(my $ready, my $tells) or die;
sub await { sysread $ready, my $one, 1 }
sub role { my ($name, $does) = @_; my $pid = fork // die; if ($pid) { push @children, $pid; return $pid } $0 = $name; close $listener if $name ne $service; $does->(); exit }
sub to { my $at = shift; ($at =~ m{^/} ? IO::Socket::UNIX->new(Peer => $at) : IO::Socket::INET->new(PeerAddr => $at)) // die }
sub listens { my $path = "$dir/s" . $sockets++; return (IO::Socket::UNIX->new(Local => $path, Listen => 4), $path) if shift eq 'unix'; my $l = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 4); ($l, '127.0.0.1:' . $l->sockport) }
sub tell_it { syswrite $tells, '.' }
sub wait_for_data { my $c = shift; my $set = IO::Select->new($c); if ($way eq 'select') { $set->can_read } elsif ($way =~ /looks=(.*)/) { 1 until $set->can_read($1) } sysread $c, my $word, 9 }
($listener, $at) = listens($wire);
# Waits for events on all its descriptors; returns what arrived.
sub look {
    my ($way, $tick, @all) = @_;
    return IO::Select->new(@all)->can_read($tick) if $way eq 'select';
    my ($set, $events) = (syscall(291, 0), "\0" x 240); # epoll_create1
    syscall 233, $set, 1, fileno $_, my $event = pack 'LQ', 1, fileno $_ for @all; # epoll_ctl
    my $came = syscall 232, $set, $events, 20, int $tick * 1000; # epoll_wait
    POSIX::close($set);
    my %came = map { (unpack 'LQ', substr $events, $_ * 12, 12)[1] => 1 } 0 .. $came - 1;
    return grep { $came{fileno $_} } @all;
}
sub relay {
    my ($next, $by, $last, $name, $wire, $way, $tick) = @_;
    my ($l, $own) = listens($wire);
    role $name, sub {
        syswrite my $idle = to($by), "q\n";
        sysread $idle, my $word, 9;
        my (%other, @all) = ();
        @all = ($l, $idle);
        while (1) {
            for my $c (look($way, $tick, @all)) {
                if ($c == $l) { push @all, scalar $l->accept; next }
                sysread $c, my $word, 9 or exit;
                if (!$other{$c}) { my $to = to($next); @other{$c, $to} = ($to, $c); push @all, $to }
                syswrite $other{$c}, $word;
                tell_it if $last && $act eq 'queued';
            }
        }
    };
    $own
}
if ($act eq 'lock') { role $holder, sub { open my $lock, '>>', $file or die; flock $lock, LOCK_EX; tell_it; sleep 1000 while 1 }; await }
# A queue without jobs for the client, which is busy with other clients.
if ($act eq 'jobs') {
    role $service, sub {
        my ($all, %asks) = IO::Select->new($listener);
        while (1) {
            for my $c ($all->can_read) {
                if ($c == $listener) { $all->add($listener->accept); next }
                sysread $c, my $word, 9 or exit;
                if ($word =~ /q/) { tell_it } else { my $n = 0; $n += $_ for 1 .. 20000; syswrite $c, "a\n" }
            }
        }
    };
    role $holder, sub { my $c = to($at); while (1) { syswrite $c, "f\n"; sysread $c, my $word, 9 } };
}
my $pid = $act eq 'jobs' ? 0 : role $service, sub {
    if ($act eq 'queued') { sleep 1000 while 1 }
    my $c = $listener->accept;
    sysread $c, my $word, 9 unless $act eq 'unread';
    if ($act eq 'answers') { syswrite $c, "a\n"; 1 while sysread $c, $word, 9 }
    tell_it;
    if ($act eq 'burn') { 1 while 1 }
    elsif ($act eq 'lock') { open my $lock, '>>', $file or die; flock $lock, LOCK_EX }
    sleep 1000 while 1;
};
my $first = $at;
if (@relays) {
    my ($l, $by) = listens('tcp');
    role "by-$service", sub {
        my $all = IO::Select->new($l);
        while (1) { for my $c ($all->can_read) { if ($c == $l) { $all->add($l->accept) } elsif (sysread $c, my $word, 9) { syswrite $c, $word } else { exit } } }
    };
    $first = relay($first, $by, $_ == $#relays, split '/', $relays[$_]) for reverse 0 .. $#relays;
}
my $asks = role $client, sub {
    my $c = to($first);
    syswrite $c, "q\n";
    if ($act eq 'answers') { sysread $c, my $word, 9; tell_it }
    tell_it if $act eq 'queued' && !@relays;
    wait_for_data $c while 1;
};
await;
if ($act eq 'stop') { kill STOP => $pid; waitpid $pid, WUNTRACED }
print "up $asks\n";
1 while <STDIN>;
kill 9, @children;
