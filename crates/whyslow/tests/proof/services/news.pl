# Processes that wait for the next message: a subscriber, to which a service sends a message now and then, and which may acknowledge each
# one; or a consumer, which requests the next job from a broker and gets it when a producer has brought one. It ends when its input ends.
# Arguments: names of the two (or three), how many ms there is no message, "plain", "acks" or "queue".
use strict; use warnings; use IO::Select; use IO::Socket::INET; use Time::HiRes qw(sleep);
$| = 1;
my ($tells, $hears, $brings, $ms, $way) = @ARGV;
my $l;
for (1 .. 99) { $l = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 10000 + int rand 20000, Listen => 8) and last }
my @children;
sub role { my ($name, $does) = @_; my $pid = fork // die; if ($pid) { push @children, $pid; return } $0 = $name; $does->(); exit }
sub to { IO::Socket::INET->new(PeerAddr => '127.0.0.1:' . $l->sockport) // die }
if ($way eq 'queue') {
    role $tells, sub {
        my ($all, @waiting) = (IO::Select->new($l));
        while (1) {
            for my $c ($all->can_read) {
                if ($c == $l) { $all->add($l->accept); next }
                if (!sysread $c, my $word, 99) { $all->remove($c); close $c; next }
                elsif ($word =~ /next/) { push @waiting, $c }
                elsif (@waiting) { syswrite shift @waiting, $word }
            }
        }
    };
    role $hears, sub { my $c = to; while (1) { syswrite $c, "next\n"; sysread $c, my $word, 99 or exit } };
    role $brings, sub { my $c = to; while (1) { sleep $ms / 1000; syswrite $c, "job\n" } };
} else {
    role $tells, sub { my $c = $l->accept; while (1) { sleep $ms / 1000; syswrite $c, "news\n" } };
    role $hears, sub { my $c = to; syswrite $c, "hello\n"; while (sysread $c, my $word, 99) { syswrite $c, "ack\n" if $way eq 'acks' } };
}
print 'up ', $l->sockport, "\n";
1 while <STDIN>;
kill 9, @children;
